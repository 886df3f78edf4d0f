"""Time whole rounds with every drafter, its weights random: drafting, verifying, the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from breakeven.cost.calibration import DraftPrice, curves_of, curves_row, price_of, price_row
from breakeven.cost.curve import CostCurve
from breakeven.measure.calibration.pace import paces, usual_of
from breakeven.measure.calibration.passes import in_rounds
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.calibration.walkers import NOTHING, Walker, walkers_of
from breakeven.measure.configuration import PLAIN
from breakeven.verifier.interface import Verifier

Key = tuple[str, int, int]
"""A walker: drafter, K, batch."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One round of one walker: the rows of its verify pass, and the seconds of its parts."""

    name: str
    k: int
    batch: int
    rows: int
    draft: float
    verify: float
    outside: float

    @property
    def key(self) -> Key:
        """Whose round it was."""
        return self.name, self.k, self.batch

    @property
    def seconds(self) -> float:
        """The whole round."""
        return self.draft + self.verify + self.outside

    def at(self, pace: float) -> Timed:
        """The same at the usual pace, where this round's was ``pace``."""
        parts = (part / pace for part in (self.draft, self.verify, self.outside))
        return Timed(self.name, self.k, self.batch, self.rows, *parts)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Usual rounds, each at the machine's usual pace; seconds.

    ``step`` is a plain step of one request, everything included, and ``plain`` are those steps as
    they came; ``verify`` are, by batch, the verify passes of the rounds by width, plain steps'
    among them.
    """

    step: float
    plain: tuple[float, ...]
    outside: float
    verify: Mapping[int, CostCurve]
    drafters: Mapping[str, Mapping[int, DraftPrice]]
    skipped: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """For storing; :meth:`of` gives an equal record."""
        return {
            "step": self.step,
            "plain": list(self.plain),
            "outside": self.outside,
            "verify": curves_row(self.verify),
            "drafters": {
                name: {str(k): price_row(price) for k, price in prices.items()}
                for name, prices in self.drafters.items()
            },
            "skipped": list(self.skipped),
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Rounds:
        """What :meth:`row` made."""
        return cls(
            step=row["step"],
            plain=tuple(row["plain"]),
            outside=row["outside"],
            verify=curves_of(row["verify"]),
            drafters={
                name: {int(k): price_of(entry) for k, entry in prices.items()}
                for name, prices in row["drafters"].items()
            },
            skipped=tuple(row["skipped"]),
        )


def measure_rounds(
    verifier: Verifier,
    plan: CalibrationPlan,
    seconds: float,
    beside: Callable[[float], None] = lambda share: None,
) -> Rounds:
    """Interleave plain steps and rounds of every drafter, K and batch of the plan.

    The drafters' weights are random, which changes no price; a script decides what is accepted.
    ``beside`` is called after every round with the share (0–1) of them that is over.
    """
    walkers, skipped = walkers_of(verifier, plan)
    turns: dict[int, list[Timed]] = defaultdict(list)
    for ran in in_rounds("rounds", walkers, seconds, plan.seed, Walker.step):
        w = ran.cell
        turns[ran.turn].append(Timed(w.name, w.k, w.batch, w.rows, w.draft, w.verify, w.outside))
        beside(ran.share)
    pace = paces([{t.key: t.seconds for t in own} for own in turns.values()])
    timed = [t.at(p) for own, p in zip(turns.values(), pace, strict=True) for t in own]
    verify: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    parts: dict[Key, list[Timed]] = defaultdict(list)
    with_more = {w.key for w in walkers if w.aboard}
    for t in timed:
        parts[t.key].append(t)
        if t.key not in with_more:
            verify[t.batch][t.rows].append(t.verify)
    curves = {batch: _curve(by_rows, plan.base) for batch, by_rows in verify.items()}
    plain = PLAIN, 0, 1
    return Rounds(
        step=usual_of(t.seconds for t in parts[plain]),
        plain=tuple(t.seconds for own in turns.values() for t in own if t.key == plain),
        outside=usual_of(t.outside for t in timed if t.name == NOTHING and t.batch == 1),
        verify=curves,
        drafters=_prices(walkers, parts, curves, plan.base),
        skipped=skipped,
    )


def _curve(seconds: Mapping[int, list[float]], base: int) -> CostCurve:
    """The usual verify pass by width, with quartiles."""
    samples = ((rows, base, spent) for rows, all_ in seconds.items() for spent in all_)
    points = CostCurve.from_samples(samples).points
    return CostCurve(tuple(replace(p, seconds=usual_of(seconds[p.rows])) for p in points))


def _prices(
    walkers: list[Walker],
    parts: Mapping[Key, list[Timed]],
    verify: Mapping[int, CostCurve],
    base: int,
) -> dict[str, dict[int, DraftPrice]]:
    """What each drafter costs by K; its start is the same for every K, so all of them tell it.

    Of a drafter that has something aboard the verify pass, drafting costs what the round's passes
    take more than verifying the same drafts alone.
    """

    def drafting(w: Walker) -> float:
        """Seconds of a round's drafting."""
        own = parts[w.key]
        passes = usual_of(t.draft for t in own)
        if not w.aboard:
            return passes
        alone = verify[w.batch].seconds(w.k + 1 - w.free)
        return max(0.0, passes + usual_of(t.verify for t in own) - alone)

    starts: dict[str, list[float]] = defaultdict(list)
    for w in walkers:
        if w.batch == 1:
            starts[w.name] += (own * base / len(w.requests[0].prompt) for own in w.starts)
    drafters: dict[str, dict[int, DraftPrice]] = {}
    for w in walkers:
        if w.name in (PLAIN, NOTHING) or w.batch > 1:
            continue
        alike = {other.batch: other for other in walkers if other.key[:2] == w.key[:2]}
        seconds = {b: drafting(other) for b, other in alike.items()}
        outside = {b: usual_of(t.outside for t in parts[o.key]) for b, o in alike.items()}
        price = DraftPrice(w.k + 1 - w.free, seconds, outside, median(starts[w.name]))
        drafters.setdefault(w.name, {})[w.k] = price
    return drafters
