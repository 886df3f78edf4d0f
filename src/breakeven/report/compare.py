"""Refuse to put runs side by side that measured different things.

A ratio means something only against plain decoding of the same model on the same prompts in the
same execution mode. The machine may differ (then compare ratios, not tokens per second), and the
page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from breakeven.counting import counted
from breakeven.errors import DataError
from breakeven.report.run import Note, Run


def _prompt_ids(run: Run) -> Any:
    """The prompts' ids, where nothing better is stated and all requests could be read."""
    if run.cut or run.configuration.get("prompts_sha256"):
        return None
    return frozenset(row.id for row in run.requests) or None


def _verifier(name: str) -> Callable[[Run], Any]:
    return lambda run: run.verifier.get(name)


def _setting(name: str) -> Callable[[Run], Any]:
    return lambda run: run.configuration.get(name)


FIELDS: dict[str, Callable[[Run], Any]] = {
    "verifier.name": _verifier("name"),
    "verifier.weights_sha256": _verifier("weights_sha256"),
    "split": _setting("split"),
    "prompts": _setting("prompts"),
    "prompts_sha256": _setting("prompts_sha256"),
    "prompt ids": _prompt_ids,
    "max_new_tokens": _setting("max_new_tokens"),
    "mode": _setting("mode"),
    "dtype": _setting("dtype"),
}
"""What must be equal, and where to read it. A field one side does not state is not compared."""


def check_comparable(runs: Sequence[Run]) -> None:
    """Raise :class:`DataError` naming the first field in which two runs differ."""
    first = runs[0]
    for run in runs:
        if len(runs) > 1 and not run.configuration:
            raise DataError(
                f"{run.path}: without a readable configuration.json nothing says what it measured,"
                " so it cannot be compared; report it alone"
            )
    for other in runs[1:]:
        for name, read in FIELDS.items():
            ours, theirs = read(first), read(other)
            if ours is not None and theirs is not None and ours != theirs:
                raise DataError(
                    f"{first.path} and {other.path} cannot be compared: {name} differs"
                    f" ({_show(ours)} and {_show(theirs)}); report them one by one"
                )


def machine_notes(runs: Sequence[Run]) -> list[Note]:
    """What differs between runs that may be compared nevertheless."""
    notes = []
    for name in ("cpu", "threads", "gpu", "torch"):
        values = {str(run.machine.get(name)) for run in runs}
        if len(values) > 1:
            text = f"{name} differs between the runs ({', '.join(sorted(values))}):"
            notes.append(
                Note("configuration.json", f"{text} compare ratios, not tokens per second")
            )
    return notes


def _show(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{counted(len(value), 'prompt')}"
    text = str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"
