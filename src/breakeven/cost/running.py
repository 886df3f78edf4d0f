"""Running cost: what a round of k drafts costs now, from a measured curve and the latest passes.

Machines change their pace from second to second, and a policy that compares a plain step of a
minute ago with a verify pass of now compares the minutes. So every pass is divided by the *pace*,
a slow average of how long passes take beside what was expected of them. Only ratios of prices
matter to a choice, and in those the pace cancels out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from breakeven.core import Pass, Phase
from breakeven.cost.calibration import Calibration
from breakeven.cost.curve import CostCurve

KEPT = 9
"""Samples of each kind."""
PACE_STEP = 0.1
"""Share of a surprise that is put down to the machine's pace."""
WORST_SURPRISE = 2.0
"""A pass that was this many times slower or faster than expected counts as no more."""
FIRST_BLOCK, FIRST_TOKEN = 1.0, 0.3
"""Plain steps of a draft before one was seen: of a block, or for each token of a sequence."""

Kind = TypeVar("Kind")


class RunningMedian:
    """The median of the latest samples, computed when one comes and read for nothing.

    >>> median = RunningMedian()
    >>> for sample in (1.0, 9.0, 2.0):
    ...     median.add(sample)
    >>> median.value
    2.0
    """

    __slots__ = ("_samples", "value")

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=KEPT)
        self.value = 0.0

    def add(self, sample: float) -> None:
        """Take one more sample; the oldest goes."""
        self._samples.append(sample)
        self.value = sorted(self._samples)[len(self._samples) // 2]


class RunningCost:
    """Prices of rounds in seconds at the machine's usual pace.

    ``expected`` is what passes should take. A curve knows one request; a batch of B requests with W
    rows each counts as B · W rows until it was seen. A calibration knows batches. ``sequential``
    says that drafting takes a pass for each token.

    >>> cost = RunningCost(CostCurve.of({1: 0.010, 5: 0.012}))
    >>> cost.plain(batch=1, context=0), cost.drafting(4, batch=1, context=0, free=0, light=True)
    (0.01, 0.012)
    """

    def __init__(self, expected: CostCurve | Calibration, *, sequential: bool = False) -> None:
        self._expected, self._sequential = expected, sequential
        self._pace: float | None = None
        self._factors: dict[
            tuple[int, int], RunningMedian
        ] = {}  # (batch, rows): seconds / expected
        self._drafts: dict[int, RunningMedian] = {}  # k: seconds of drafting a block; 1: a token
        self._rest: dict[str, RunningMedian] = {}  # kind of round: seconds outside passes

    def plain(self, *, batch: int, context: int) -> float:
        """A plain step of ``batch`` requests."""
        return self._verifying(batch, 1, context) + self._outside("plain")

    def drafting(self, k: int, *, batch: int, context: int, free: int, light: bool) -> float:
        """A round of k ≥ 1 drafts; a ``light`` draft takes no pass."""
        rows = k + 1 - (0 if light else free)
        price = self._verifying(batch, rows, context)
        if light:
            return price + self._outside("light")
        return price + self._proposing(k, batch, context) + self._outside("pass")

    def further(self, drafted: int, *, batch: int, context: int) -> float:
        """What one more token costs after ``drafted``, drafted one by one.

        Its verification is what the curve says: the medians of two neighbouring widths differ by
        more than a row costs.
        """
        rows = drafted + 1
        verifying = self._asked(batch, rows + 1, context) - self._asked(batch, rows, context)
        return self._proposing(1, batch, context) + max(0.0, verifying)

    def observe(self, passes: Sequence[Pass], seconds: float, *, drafted: int, light: bool) -> None:
        """One round: its passes, its wall time and the longest draft in it.

        The passes of a round are its draft passes and, last, a plain step or a verify pass.
        """
        *drafting, last = passes
        asked = self._asked(last.batch, last.rows, last.context)
        pace = self._walk(last.seconds / asked / self._factor(last.batch, last.rows))
        _keep(self._factors, (last.batch, last.rows), last.seconds / asked / pace)
        spent = sum(p.seconds for p in drafting)
        if drafted and not light:
            tokens = drafted if self._sequential else 1
            _keep(self._drafts, drafted // tokens, spent / tokens / pace)
        kind = "plain" if last.phase is Phase.PLAIN else "light" if light else "pass"
        if seconds > 0:
            _keep(self._rest, kind, max(0.0, seconds - spent - last.seconds) / pace)

    def _walk(self, surprise: float) -> float:
        """Move the pace by a part of the surprise (seconds beside expected ones)."""
        if self._pace is None:
            self._pace = surprise
        ratio = surprise / self._pace
        ratio = min(WORST_SURPRISE, max(1 / WORST_SURPRISE, ratio))
        self._pace *= ratio**PACE_STEP
        return self._pace

    def _verifying(self, batch: int, rows: int, context: int) -> float:
        return self._asked(batch, rows, context) * self._factor(batch, rows)

    def _asked(self, batch: int, rows: int, context: int) -> float:
        if isinstance(self._expected, Calibration):
            return self._expected.seconds(rows, context, batch)
        return self._expected.seconds(batch * rows, context)

    def _factor(self, batch: int, rows: int) -> float:
        """How far off the curve passes of this shape are; that of the nearest shape seen."""
        known = self._factors.get((batch, rows))
        if known is None:
            near = [key for key in self._factors if key[0] == batch]
            if not near:
                return 1.0
            known = self._factors[min(near, key=lambda key: (abs(key[1] - rows), key[1]))]
        return known.value

    def _proposing(self, k: int, batch: int, context: int) -> float:
        if not self._drafts:
            first = FIRST_TOKEN * k if self._sequential else FIRST_BLOCK
            return first * self._verifying(batch, 1, context)
        if self._sequential:
            return k * self._drafts[1].value
        return self._drafts[min(self._drafts, key=lambda seen: (abs(seen - k), seen))].value

    def _outside(self, kind: str) -> float:
        known = self._rest.get(kind) or self._rest.get("plain")
        return known.value if known else 0.0


def _keep(table: dict[Kind, RunningMedian], kind: Kind, value: float) -> None:
    if kind not in table:
        table[kind] = RunningMedian()
    table[kind].add(value)
