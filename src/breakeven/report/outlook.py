"""What each drafter of a run would be worth under other prices: the oracle, applied.

Prices come from ``performance.csv`` (``c_d``, ``c_v``, ``c_s`` in plain steps), earnings from its
acceptance length and the survival of ``acceptance.csv``. Other draft lengths are priced by
``cost_curve.csv``, levelled to what the rounds paid, so that the length that was run comes out as
it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from breakeven.cost.breakeven import Option, RoundCost, block, expected_committed, verify_price
from breakeven.cost.levelling import through
from breakeven.cost.oracle import Oracle, RoundTime
from breakeven.errors import DataError
from breakeven.report.records import Acceptance
from breakeven.report.run import Run
from breakeven.report.variations import Ladder


@dataclass(frozen=True, slots=True)
class Outlook:
    """One configuration beside plain decoding.

    ``k`` is the draft length that was run; ``ladder`` prices every length up to it (it needs
    survival and prices at other widths, else None); ``free`` whether its first draft is the
    verifier's own decision; ``plain`` is plain decoding's tokens per second, 1.0 when only ratios
    are known.

    >>> look = Outlook("two-pass-k4", 4, RoundCost(1.0, 1.1, 0.1), committed=2.75, plain=40.0)
    >>> round(look.speed, 2), round(look.oracle.throughput(r=1), 1)
    (1.25, 91.7)
    """

    config: str
    k: int
    cost: RoundCost
    committed: float
    plain: float = 1.0
    ladder: Ladder | None = None
    free: bool = False

    @property
    def best(self) -> Option | None:
        """The draft length with the highest expected speed among 0 … k."""
        return self.ladder.best if self.ladder else None

    @property
    def speed(self) -> float:
        """Speed relative to plain decoding: acceptance length over break-even."""
        return self.cost.speed(self.committed)

    @property
    def oracle(self) -> Oracle:
        """The same figures in seconds."""
        step = 1.0 / self.plain
        parts = (self.cost.draft * step, self.cost.verify * step, self.cost.other * step)
        return Oracle(self.committed, RoundTime(*parts), self.plain)


def outlooks(run: Run, config: str | None = None) -> list[Outlook]:
    """One for each configuration (or the named one) with measured prices and acceptance length.

    Raises :class:`DataError` when there is none, saying what the run lacks.
    """
    if config is not None and config not in run.configs:
        raise DataError(
            f"{run.path}: no configuration '{config}'; it has {', '.join(run.configs) or 'none'}"
        )
    names = run.configs if config is None else [config]
    found = [outlook for name in names if (outlook := _outlook(run, name)) is not None]
    if not found:
        raise DataError(
            f"{run.path}: performance.csv has no prices (c_d, c_v, c_s) and acceptance lengths"
            f" beside plain decoding for {', '.join(names) or 'any drafter'}; run `breakeven bench`"
        )
    return found


def _outlook(run: Run, config: str) -> Outlook | None:
    plain, row = run.plain, run.speed_of(config)
    if plain is None or row is None or not plain.tokens_per_s or not row.break_even:
        return None
    committed = row.acceptance_length or 0.0
    if committed < 1.0:
        return None
    parts = [max(0.0, part or 0.0) for part in (row.c_d, row.c_v, row.c_s)]
    if not sum(parts):
        return None
    cost, k = RoundCost(*parts), run.draft_length(config)
    free = run.free_first(config)
    found = Outlook(config, k, cost, committed, plain.tokens_per_s, free=free)
    return replace(found, ladder=_ladder(run, found))


def _ladder(run: Run, outlook: Outlook) -> Ladder | None:
    """Earnings and prices by draft length; at the measured length they are the measured ones.

    A policy that chooses for itself has none, nor has a run without survival or cost curve. A
    drafter like ``ngram`` often drafts less than K, or nothing: with a shorter K the rounds that
    drafted more are cut to it, and the others stay as they are.
    """
    acceptance, config, cost = run.acceptance_of(outlook.config), outlook.config, outlook.cost
    settings = run.settings(config)
    if run.curve is None or acceptance is None or not acceptance.survival or not cost.verify:
        return None
    if settings.get("policy", "fixed") != "fixed":
        return None
    k, free = len(acceptance.survival), int(outlook.free)
    survival = tuple(min(1.0, *acceptance.survival[: i + 1]) for i in range(k))
    drafts = _drafts(run, acceptance)
    reach = tuple(min(1.0, sum(drafts[i:])) for i in range(1, k + 1))
    widths: dict[int, float] = {}
    for made, share in enumerate(drafts):
        if share:
            rows = max(1, made + 1 - free)
            widths[rows] = widths.get(rows, 0.0) + share
    own = (run.plain and run.plain.c_v) or 1.0  # a plain step's pass, the rest is outside it
    level = through(run.curve, widths, cost.verify, own if 0 < own < 1 else 1.0)
    passes = verify_price(level, free=free)
    unit = level.seconds(1)

    def verify(most: int) -> float:
        return unit * sum(share * passes(min(made, most)) for made, share in enumerate(drafts))

    def one_by_one(most: int) -> float:
        return cost.draft * (sum(reach[:most]) / sum(reach) if sum(reach) else most / k)

    draft = one_by_one if settings.get("passes") == "sequential" else block(cost.draft)
    kept = outlook.committed / expected_committed(survival)
    return Ladder(survival, draft, verify, cost.other, free, reach, kept)


def _drafts(run: Run, acceptance: Acceptance) -> list[float]:
    """The share of rounds with 0, 1, … K drafts.

    From the requests' histograms; without them the mean number stands for all rounds.
    """
    k = len(acceptance.survival)
    counts = [0.0] * (k + 1)
    for request in run.requests:
        if request.config == acceptance.config:
            for made, count in enumerate(request.drafted_histogram):
                counts[min(made, k)] += count
    if not sum(counts):
        mean = acceptance.drafted / acceptance.rounds if acceptance.rounds else k
        mean = min(float(k), max(0.0, mean))
        below = int(mean)
        counts[below] += 1 - (mean - below)
        counts[min(below + 1, k)] += mean - below
    return [count / sum(counts) for count in counts]
