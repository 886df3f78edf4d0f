"""One way to show long work: a rich bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Meter:
    """Handle given to the worker: :meth:`advance` it, add a :meth:`note`."""

    def advance(self, amount: int = 1) -> None:
        """``amount`` more units are done."""

    def note(self, text: str) -> None:
        """A short remark shown beside the bar, e.g. the loss."""

    @contextmanager
    def stage(self, label: str, total: int) -> Iterator[Meter]:
        """A meter of its own for a part of the work that this one waits for.

        Its time is part of this one's. One that is over soon says nothing.
        """
        yield Meter()


class _Bar(Meter):
    def __init__(self, progress: Progress, task: int) -> None:
        self._progress, self._task = progress, task

    def advance(self, amount: int = 1) -> None:
        self._progress.advance(self._task, amount)  # type: ignore[arg-type]

    def note(self, text: str) -> None:
        self._progress.update(self._task, note=text)  # type: ignore[arg-type]

    @contextmanager
    def stage(self, label: str, total: int) -> Iterator[Meter]:
        task = self._progress.add_task(label, total=total, note="")
        try:
            yield _Bar(self._progress, task)
        finally:
            self._progress.remove_task(task)


class _Lines(Meter):
    def __init__(
        self, label: str, total: int, done: int, every_s: float, *, part: bool = False
    ) -> None:
        self._part = part
        self._label, self._total, self._done, self._first = label, total, done, done
        self._every_s, self._text = every_s, ""
        self._start = self._last = time.monotonic()

    def advance(self, amount: int = 1) -> None:
        self._done = min(self._done + amount, self._total)
        now = time.monotonic()
        over = self._done == self._total and not (self._part and self._start == self._last)
        if now - self._last >= self._every_s or over:
            self._last = now
            spent = now - self._start
            left = spent / max(1, self._done - self._first) * (self._total - self._done)
            line = f"{self._label}: {self._done}/{self._total}, {spent:.0f} s, {left:.0f} s left"
            print(f"{line}{', ' + self._text if self._text else ''}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        self._text = text

    @contextmanager
    def stage(self, label: str, total: int) -> Iterator[Meter]:
        yield _Lines(label, total, 0, self._every_s, part=True)


@contextmanager
def meter(label: str, total: int, *, done: int = 0, every_s: float = 10.0) -> Iterator[Meter]:
    """Progress on standard error for ``total`` units, ``done`` of them already (after a resume)."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(label, total, done, every_s)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bar(progress, progress.add_task(label, total=total, completed=done, note=""))
