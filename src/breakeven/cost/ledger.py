"""The ledger: every forward pass is a purchase, every committed token is income.

All reports, oracles, verdicts and run-time decisions are computed from ledgers. The decoder
opens one per request (or per batch), the verifier and the drafters enter their passes in it,
and the round enters what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from breakeven.core import Pass, Phase, Round


@dataclass(slots=True)
class Ledger:
    """Passes bought and rounds earned, with the wall time around them.

    ``wall_s`` is the time spent inside :meth:`open` blocks; what is in no pass is
    ``other_s``: Python, sampling, bookkeeping.
    """

    passes: list[Pass] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    wall_s: float = 0.0
    _owed: list[tuple[int, Callable[[], float]]] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        """Count the wall time of a block of work."""
        start = time.perf_counter()
        try:
            yield self
        finally:
            self.wall_s += time.perf_counter() - start

    @contextmanager
    def buy(
        self, phase: Phase, *, rows: int, batch: int, context: int, mode: str, model: str
    ) -> Iterator[None]:
        """Time one forward pass and enter it."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.passes.append(Pass(phase, rows, batch, context, seconds, mode, model))

    def owe(self, entry: Pass, seconds: Callable[[], float]) -> None:
        """Enter a pass that is still running on a device; :meth:`settle` asks for its time."""
        self._owed.append((len(self.passes), seconds))
        self.passes.append(entry)

    def settle(self) -> None:
        """Fill in the seconds of the passes that are owed; the device has been waited for."""
        for index, seconds in self._owed:
            self.passes[index] = replace(self.passes[index], seconds=seconds())
        self._owed.clear()

    def seconds(self, phase: Phase) -> float:
        """Total time of the passes of one phase, in seconds."""
        return sum(p.seconds for p in self.passes if p.phase is phase)

    def count(self, phase: Phase) -> int:
        """Number of passes of one phase."""
        return sum(p.phase is phase for p in self.passes)

    @property
    def other_s(self) -> float:
        """Wall time outside all passes, in seconds."""
        return max(0.0, self.wall_s - sum(p.seconds for p in self.passes))

    @property
    def drafted(self) -> int:
        """Tokens drafted, over all rounds."""
        return sum(r.drafted for r in self.rounds)

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted, over all rounds, before truncation."""
        return sum(r.accepted for r in self.rounds)

    @property
    def committed(self) -> int:
        """Tokens committed in rounds, after truncation (the first token comes from prefill)."""
        return sum(r.committed for r in self.rounds)
