"""The campaign's results as one Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gpu_passes import Row, break_even


def markdown(content: dict[str, Any]) -> str:
    """The page; what is missing in ``content`` is missing there."""
    where = content.get("gpu") or content["machine"].get("cpu", "a CPU")
    lines = [f"# {where}", ""]
    if content["tiny"]:
        lines += ["Tiny shapes: these figures only show that the command works.", ""]
    stages: dict[str, Any] = content["stages"]
    lines += table(
        ("stage", "status", "seconds", "why"),
        [(n, s["status"], s.get("seconds", ""), s.get("why", "")) for n, s in stages.items()],
    )
    memory = _rows(stages, "memory")
    read = memory[0]["read_bytes_per_s"] if memory else None
    for row in memory:
        lines += [
            f"Memory: {row['read_bytes_per_s'] / 1e9:.0f} GB/s read, "
            f"{row['copy_bytes_per_s'] / 1e9:.0f} GB/s copied (both directions counted).",
            "",
        ]
    for model in dict.fromkeys(name.partition(":")[0] for name in stages if ":" in name):
        lines += [f"## {model}", "", *of_model(stages, model, read)]
    for row in _rows(stages, "training"):
        lines.append(f"- {row.get('recipe', 'bench')}: exit code {row['exit_code']}")
    return "\n".join(lines)


def of_model(stages: dict[str, Any], model: str, read: float | None) -> Iterator[str]:
    """Cost curve, roofline, passes and break-even of one shape."""
    costs = _rows(stages, f"{model}: cost curve") + _rows(stages, f"{model}: compiled")
    costs = [row for row in costs if row["seconds"] is not None]
    yield from cost_table(costs)
    for row in _rows(stages, f"{model}: weights") if read else []:
        floor = row["weight_bytes"] / read if read else 0.0
        for cost in costs:
            if (cost["batch"], cost["width"]) == (1, 1):
                yield (
                    f"A plain step, {cost['mode']}: {cost['seconds'] * 1e3:.3f} ms, "
                    f"{floor / cost['seconds']:.0%} of the speed at which memory gives the weights "
                    f"({floor * 1e3:.3f} ms)."
                )
                yield ""
    found = _rows(stages, f"{model}: PEFT-BD passes")
    if found:
        yield from table(
            ("PEFT-BD pass", "masks", "mode", "rows", "ms"),
            [
                (r["pass"], r["masks"], r["mode"], r["rows"], f"{r['seconds'] * 1e3:.3f}")
                for r in found
            ],
        )
    complete = found if len(found) % 4 == 0 else found[: len(found) // 4 * 4]
    even = [("passes alone", row) for row in break_even(complete)]
    even += [("whole rounds", row) for row in _rows(stages, f"{model}: rounds")]
    if even:
        yield "Break-even: the acceptance length at which speculation equals plain decoding."
        yield ""
        yield from table(
            ("from", "round", "masks", "mode", "break-even"),
            [(w, r["round"], r["masks"], r["mode"], f"{r['break_even']:.2f}") for w, r in even],
        )


def cost_table(costs: Sequence[Row]) -> Iterator[str]:
    """Milliseconds of a pass, and its price in one-row passes of the same mode and batch."""
    if not costs:
        return
    one = {(r["mode"], r["batch"]): r["seconds"] for r in costs if r["width"] == 1}
    widths = sorted({row["width"] for row in costs})
    lines = []
    for mode, batch in dict.fromkeys((row["mode"], row["batch"]) for row in costs):
        by_width = {
            r["width"]: r["seconds"] for r in costs if (r["mode"], r["batch"]) == (mode, batch)
        }
        cells = []
        for width in widths:
            seconds, unit = by_width.get(width), one.get((mode, batch))
            ratio = f" ({seconds / unit:.2f})" if seconds and unit else ""
            cells.append(f"{seconds * 1e3:.3f}{ratio}" if seconds else "")
        lines.append((mode, batch, *cells))
    yield "Milliseconds of a pass by width W, and C(W)/C(1)."
    yield ""
    yield from table(("mode", "batch", *(f"W={w}" for w in widths)), lines)


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table and an empty line.

    >>> table(("a", "b"), [(1, 2)])
    ['| a | b |', '|---|---|', '| 1 | 2 |', '']
    """
    lines = [head, *rows]
    shown = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    return [shown[0], "|" + "---|" * len(head), *shown[1:], ""]


def _rows(stages: dict[str, Any], name: str) -> list[Row]:
    found: list[Row] = stages.get(name, {}).get("rows", [])
    return found
