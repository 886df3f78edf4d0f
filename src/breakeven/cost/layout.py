"""How many masks ride in a verify pass: the layout with the most tokens per second.

A round that verifies K drafts and carries g groups of m masks is a pass of ``K + 1 + g * m`` rows
(ALGORITHMS 1.11). Group i is the next draft if i drafts are accepted. An outcome beyond the groups
leaves the next round without a draft: that round is a pass of ``1 + m`` rows, commits one token
and drafts anew. So rounds are a chain of two states, with a draft and without one. Of the rounds
with a draft the share ``s_g`` (all of the first g accepted, 0 where K < g) loses the next one, and

    share of rounds with a draft = 1 / (1 + s_g)
    tokens of a round = (1 + s_1 + … + s_K + s_g) / (1 + s_g)
    seconds of a round = (C(K + 1 + g m) + s_g C(1 + m)) / (1 + s_g)

More groups earn more tokens and cost more rows. What is best depends on the curve C, so it is
searched for. Plain decoding, one token for C(1), is one of the choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from breakeven.cost.breakeven import survival_of
from breakeven.cost.curve import CostCurve


@dataclass(frozen=True, slots=True)
class Layout:
    """K ``drafts`` verified in a round, ``groups`` of ``masks`` beside them; all 0: plain decoding.

    ``tokens`` and ``seconds`` are those that a round is expected to commit and to take.
    """

    drafts: int
    groups: int
    masks: int
    tokens: float
    seconds: float

    @property
    def speed(self) -> float:
        """Expected tokens per second."""
        return self.tokens / self.seconds

    @property
    def rows(self) -> int:
        """Rows of a pass with drafts."""
        return self.drafts + 1 + self.groups * self.masks

    def __str__(self) -> str:
        if not self.drafts:
            return "plain decoding"
        return f"{self.drafts} drafts, {self.groups} groups of {self.masks} masks"


def layouts(
    rates: Sequence[float],
    curve: CostCurve,
    *,
    masks: int | None = None,
    context: int | None = None,
) -> Iterator[Layout]:
    """Plain decoding and every layout with up to ``len(rates)`` masks, fewest rows of a kind first.

    ``rates`` are conditional acceptance rates by position. A group of m masks makes no draft of
    more than m tokens, so K ≤ m. ``masks``: groups of so many only; ``context`` as in
    :meth:`CostCurve.seconds`.

    >>> free, dear = CostCurve.of({1: 1.0, 9: 1.0}), CostCurve.of({1: 1.0, 9: 9.0})
    >>> [str(fastest(layouts([0.8, 0.5], curve))) for curve in (free, dear)]
    ['2 drafts, 3 groups of 2 masks', 'plain decoding']
    """
    yield Layout(0, 0, 0, 1.0, curve.seconds(1, context))
    for size in range(1, len(rates) + 1) if masks is None else (masks,):
        for drafts in range(1, min(size, len(rates)) + 1):
            for groups in range(1, drafts + 2):
                yield _priced(rates[:drafts], groups, size, curve, context)


def fastest(choices: Iterator[Layout]) -> Layout:
    """The layout with the most expected tokens per second; of equals the first."""
    return max(choices, key=lambda layout: layout.speed)


def _priced(
    rates: Sequence[float], groups: int, masks: int, curve: CostCurve, context: int | None
) -> Layout:
    survival = survival_of(rates)
    lost = survival[groups - 1] if groups <= len(survival) else 0.0
    share = 1.0 / (1.0 + lost)
    drafts = len(survival)
    full = curve.seconds(drafts + 1 + groups * masks, context)
    bare = curve.seconds(1 + masks, context)
    tokens = share * (1.0 + sum(survival) + lost)
    return Layout(drafts, groups, masks, tokens, share * (full + lost * bare))
