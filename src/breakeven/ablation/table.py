"""The result as Markdown for ``table.md`` and as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from breakeven.ablation.conclusion import DEFINITIONS, GroupResult, Result
from breakeven.ablation.findings import interval, plain, signed
from breakeven.ablation.outcome import Outcome
from breakeven.files import write_whole

COLUMNS = (
    "variant",
    "what is different",
    "K",
    "AL (95 %)",
    "difference (95 %)",
    "survival s_1 … s_K",
    "rate",
    "accuracy",
    "simulated AL",
    "c_d + c_v + c_s",
    "speed (95 %)",
    "output",
)
SHORT = ("variant", "AL", "95 %", "difference", "s_1 …", "rate", "needs", "speed", "output")
FEW = 3  # survivals shown on the terminal
USED = (
    "acceptance_length",
    "intervals",
    "difference",
    "survival_k",
    "acceptance_rate",
    "accuracy",
    "simulated_acceptance_length",
    "c_d, c_v, c_s",
    "plain step",
    "speed",
)


def write_markdown(result: Result, path: Path) -> None:
    """Write the table with one section per group, then the definitions."""
    lines = [result.line, ""]
    if result.missing:
        lines += [f"Not run yet: {', '.join(result.missing)}", ""]
    for group in result.groups:
        lines += [f"## {group.name}", "", *([group.about, ""] if group.about else [])]
        lines += [_markdown_row(COLUMNS), _markdown_row(["---"] * len(COLUMNS))]
        lines += [_markdown_row(_cells(result, outcome)) for outcome in group.outcomes]
        lines += ["", *(f"- {found}" for found in group.findings)]
        lines += [""] if group.findings else []
    lines += ["## Definitions", "", *(f"- {word}: {DEFINITIONS[word]}" for word in USED)]
    write_whole(path, "\n".join(lines) + "\n")


def terminal(result: Result) -> Group:
    """The same, narrower, for a rich console."""
    parts: list[Table | Text] = []
    for group in result.groups:
        parts += [_short_table(result, group)]
        parts += [Text(f"  · {found}") for found in group.findings]
        parts += [Text()]
    if result.missing:
        parts += [Text(f"not run yet: {', '.join(result.missing)}")]
    return Group(*parts, Text(result.line))


def _short_table(result: Result, group: GroupResult) -> Table:
    title = f"{group.name}: {group.about}" if group.about else group.name
    table = Table(box=None, padding=(0, 1, 0, 0), title=escape(title), title_justify="left")
    for name in SHORT:
        table.add_column(name, justify="left" if name in ("variant", "output") else "right")
    for outcome in group.outcomes:
        length, name = outcome.acceptance_length, outcome.variant.name
        difference = result.differences.get(name)
        table.add_row(
            name,
            plain(length.value),
            "–" if math.isnan(length.low) else f"{plain(length.low)}–{plain(length.high)}",
            signed(difference.estimate.value) if difference else "–",
            _numbers(outcome.survival[:FEW]),
            plain(outcome.acceptance.acceptance_rate),
            plain(outcome.cost.break_even),
            plain(outcome.speed.value),
            result.equality[name].shown,
        )
    return table


def _cells(result: Result, outcome: Outcome) -> list[str]:
    variant, cost = outcome.variant, outcome.cost
    difference = result.differences.get(variant.name)
    shares = " + ".join(plain(share) for share in (cost.draft, cost.verify, cost.other))
    against = f" vs {difference.against}" if difference else ""
    return [
        variant.name,
        variant.says,
        str(variant.k),
        interval(outcome.acceptance_length),
        (interval(difference.estimate, signed) if difference else "–") + against,
        _numbers(outcome.survival),
        plain(outcome.acceptance.acceptance_rate),
        plain(outcome.teacher_forced.accuracy),
        plain(outcome.teacher_forced.acceptance_length),
        f"{shares} = {plain(cost.break_even)}",
        interval(outcome.speed),
        result.equality[variant.name].shown,
    ]


def _numbers(values: Sequence[float]) -> str:
    return " ".join(plain(value) for value in values)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
