"""What if: more acceptance, cheaper drafting, a smaller draft vocabulary; the best K of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from breakeven.cost.breakeven import Option, Price, best_k, conditional_of, options, survival_of
from breakeven.cost.traffic import pruned


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The changes to try. Acceptance rises by ``more`` (each conditional rate, at most to 1).

    Drafting costs ``cheaper`` times as much. Of the drafting price ``head_share`` is the head's,
    of whose rows the share ``kept`` stays.
    """

    more: float = 0.1
    cheaper: float = 0.5
    head_share: float = 0.0
    kept: float = 1.0


USUAL = WhatIf()
"""What is tried when nobody asks for anything else."""


@dataclass(frozen=True)
class Ladder:
    """What every draft length of one configuration earns and costs; ``free`` first tokens.

    ``reach`` is the share of rounds with at least 1, 2, … drafts (empty: every round has all of
    them), which no acceptance can exceed; ``kept`` is the share of a round's tokens that the end of
    an answer leaves standing.
    """

    survival: tuple[float, ...]
    draft: Price
    verify: Price
    other: float = 0.0
    free: int = 0
    reach: tuple[float, ...] = ()
    kept: float = 1.0

    @property
    def rungs(self) -> tuple[Option, ...]:
        """Every draft length, 0 first."""
        how = {"other": self.other, "kept": self.kept}
        return options(self.survival, self.draft, self.verify, **how)

    @property
    def best(self) -> Option:
        """The draft length with the highest expected speed, 0 included."""
        how = {"other": self.other, "kept": self.kept}
        return best_k(self.survival, self.draft, self.verify, **how)

    @property
    def next_gain(self) -> float | None:
        """Marginal speed of one more draft than the best K; None at the end of the ladder."""
        rungs = self.rungs
        after = self.best.k + 1
        return rungs[after].gain if after < len(rungs) else None

    def accepting(self, more: float) -> Ladder:
        """With every guess's conditional acceptance raised by ``more``, where one is made.

        >>> half = Ladder((0.25, 0.1), lambda k: 0.0, lambda k: 1.0, reach=(0.5, 0.5))
        >>> [round(s, 3) for s in half.accepting(0.1).survival]  # 0.25 of 0.5 drafted hold
        [0.3, 0.15]
        """
        rates = conditional_of(self.survival)
        made = conditional_of(self.reach) if self.reach else (1.0,) * len(rates)
        raised = [
            rate if i < self.free else _raised(rate, share, more)
            for i, (rate, share) in enumerate(zip(rates, made, strict=True))
        ]
        return replace(self, survival=survival_of(raised))

    def drafting(self, times: float) -> Ladder:
        """With drafting at ``times`` its price."""
        own = self.draft
        return replace(self, draft=lambda k: times * own(k))


def _raised(rate: float, made: float, more: float) -> float:
    """A conditional rate over all rounds, raised by ``more`` in the share that makes this draft."""
    made = max(rate, made)
    return made * min(1.0, max(0.0, rate / made + more)) if made > 0 else 0.0


def variations(ladder: Ladder, what: WhatIf) -> Iterator[tuple[str, Option]]:
    """Each change with the best draft length under it."""
    yield (
        f"If {100 * what.more:.0f} more of 100 drafts held at each position",
        ladder.accepting(what.more).best,
    )
    if ladder.draft(len(ladder.survival)) > 0:
        yield f"If drafting cost {what.cheaper:g} times as much", ladder.drafting(what.cheaper).best
    if what.kept < 1 and what.head_share > 0:
        left = pruned(1.0, what.head_share, what.kept)
        yield (
            f"If the draft vocabulary kept {what.kept:.0%} of its tokens (drafting at"
            f" {left:.2f} of its price)",
            ladder.drafting(left).best,
        )


def worth(option: Option, longest: Sequence[float]) -> str:
    """A best draft length in words."""
    if option.k == 0:
        return f"None of 1 to {len(longest)} earns its price: plain decoding is fastest."
    return (
        f"Expected {option.speed:.2f}× with K = {option.k}, {option.committed:.2f} tokens a round."
    )
