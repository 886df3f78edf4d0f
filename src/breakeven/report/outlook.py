"""What each drafter of a run would be worth under other prices: the oracle, applied.

Prices come from ``performance.csv`` (``c_d``, ``c_v``, ``c_s`` in plain steps), earnings from its
acceptance length and the survival of ``acceptance.csv``, other widths from ``cost_curve.csv``.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.cost.breakeven import (
    Option,
    Price,
    RoundCost,
    block,
    sequential,
    verify_price,
)
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
    acceptance = run.acceptance_of(config)
    ladder = _ladder(run, config, cost, acceptance) if acceptance else None
    free = run.free_first(config)
    return Outlook(config, k, cost, committed, plain.tokens_per_s, ladder, free)


def _ladder(run: Run, config: str, cost: RoundCost, acceptance: Acceptance) -> Ladder | None:
    """Earnings and prices by draft length; at the measured length the prices are the measured ones.

    A policy that chooses for itself has none. The measured verify price belongs to the drafts that
    were really made, which a drafter like ``ngram`` often makes shorter than K.
    """
    k = len(acceptance.survival)
    if run.curve is None or not k:
        return None
    settings = run.settings(config)
    if settings.get("policy", "fixed") != "fixed":
        return None
    shape = verify_price(run.curve, free=int(run.free_first(config)))
    made = round(acceptance.drafted / acceptance.rounds) if acceptance.rounds else k
    scale = cost.verify / shape(min(k, made))
    one_by_one = settings.get("passes") == "sequential"
    draft: Price = sequential(cost.draft / k) if one_by_one else block(cost.draft)
    survival = tuple(min(1.0, *acceptance.survival[: i + 1]) for i in range(k))
    free = int(run.free_first(config))
    return Ladder(survival, draft, lambda width: scale * shape(width), cost.other, free)
