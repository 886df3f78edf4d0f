"""Income against price: expected committed tokens, break-even, and the best draft length.

A round *earns* N = a + 1 tokens: the accepted drafts and one token of the verifier's own. It
*costs* ``c_d + c_v + c_s`` plain decoding steps: drafting, verifying, everything else. It beats
plain decoding exactly when it earns more than it costs:

    E[N] > c_d + c_v + c_s                        (the right side is the *break-even*)
    speed relative to plain decoding = E[N] / (c_d + c_v + c_s)

The survival vector ``s_1 … s_K`` is the probability that the first k drafts are *all* accepted
(unconditional, so it never rises); E[N] = 1 + s_1 + … + s_K. A drafter with a *free first token*
has s_1 = 1, and its verify pass is one row narrower (the root was already run while drafting).
Formulas: ALGORITHMS 8.2 of the design notes; Leviathan et al. (arXiv 2211.17192) for constant α.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from breakeven.cost.curve import CostCurve
from breakeven.counting import counted
from breakeven.errors import RecipeError

Price = Callable[[int], float]
"""Cost, in plain steps, of drafting or verifying k tokens."""


def checked_survival(survival: Sequence[float]) -> tuple[float, ...]:
    """``survival`` itself if it is one: each value in 0–1 and never rising.

    >>> checked_survival([0.5, 0.7])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    breakeven.errors.RecipeError: survival 0.5, 0.7: position 2 rises; ...
    """
    shown = ", ".join(f"{s:g}" for s in survival)
    for position, s in enumerate(survival, start=1):
        if not 0.0 <= s <= 1.0:
            raise RecipeError(f"survival {shown}: {s:g} is not a probability; give values in 0–1")
        if position > 1 and s > survival[position - 2] + 1e-12:
            raise RecipeError(
                f"survival {shown}: position {position} rises; s_k is the share of rounds whose"
                " first k drafts are all accepted (for conditional rates use --conditional)"
            )
    return tuple(survival)


def survival_of(conditional: Sequence[float]) -> tuple[float, ...]:
    """Survival from conditional acceptance rates (given that the drafts before were accepted).

    >>> survival_of([0.8, 0.5])
    (0.8, 0.4)
    """
    return checked_survival(tuple(accumulate(conditional, mul)))


def conditional_of(survival: Sequence[float]) -> tuple[float, ...]:
    """Conditional acceptance ``s_k / s_{k-1}``; 0 where no round got that far.

    >>> conditional_of([0.8, 0.4, 0.0, 0.0])
    (0.8, 0.5, 0.0, 0.0)
    """
    before = (1.0, *survival[:-1])
    return tuple(s / b if b > 0 else 0.0 for s, b in zip(survival, before, strict=False))


def constant_alpha(alpha: float, k: int) -> tuple[float, ...]:
    """Survival ``α, α², … α^k`` of a drafter that is right with probability α anywhere.

    >>> round(expected_committed(constant_alpha(0.653, 16)), 2)
    2.88
    >>> for a in (0.5, 0.6, 0.653, 0.7, 0.8, 0.9):  # E[N] of 3, 7 and 16 drafts
    ...     print(a, *(f"{expected_committed(constant_alpha(a, d)):.2f}" for d in (3, 7, 16)))
    0.5 1.88 1.99 2.00
    0.6 2.18 2.46 2.50
    0.653 2.36 2.79 2.88
    0.7 2.53 3.14 3.33
    0.8 2.95 4.16 4.89
    0.9 3.44 5.70 8.33
    >>> seven, all_ = (expected_committed(constant_alpha(0.653, d)) for d in (7, 16))
    >>> round(seven / all_, 2)  # half of a 16-token block is wasted at this rate
    0.97
    """
    return checked_survival(tuple(alpha**i for i in range(1, k + 1)))


def alpha_for(committed: float, k: int) -> float:
    """The constant α whose E[N] over k drafts equals ``committed`` (between 1 and k + 1).

    >>> round(alpha_for(2.881, 16), 3)
    0.653
    """
    if not 1.0 <= committed <= k + 1:
        raise RecipeError(
            f"{committed:g} tokens a round: {counted(k, 'draft')} can commit 1 to {k + 1} tokens"
        )
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if expected_committed(constant_alpha(middle, k)) < committed:
            low = middle
        else:
            high = middle
    return low


def expected_committed(survival: Sequence[float]) -> float:
    """E[N] = 1 + Σ s_k: tokens committed by a round, the verifier's own token included.

    >>> expected_committed([0.5, 0.25])
    1.75
    """
    return 1.0 + sum(survival)


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a round costs, in units of one plain decoding step.

    >>> cost = RoundCost(draft=1.0, verify=1.1, other=0.1)
    >>> round(cost.break_even, 2), round(cost.speed(2.75), 2)
    (2.2, 1.25)
    """

    draft: float
    """c_d"""
    verify: float
    """c_v"""
    other: float = 0.0
    """c_s"""

    def __post_init__(self) -> None:
        shares = (("draft", self.draft), ("verify", self.verify), ("other", self.other))
        for name, value in shares:
            if not 0.0 <= value < float("inf"):
                raise RecipeError(f"{name} cost {value:g}: give 0 or more plain steps")
        if self.break_even <= 0:
            raise RecipeError("a round costs something: give a draft or verify cost above 0")

    @property
    def break_even(self) -> float:
        """The acceptance length at which speculation equals plain decoding."""
        return self.draft + self.verify + self.other

    def speed(self, committed: float) -> float:
        """Speed relative to plain decoding when a round commits ``committed`` tokens."""
        return committed / self.break_even


@dataclass(frozen=True, slots=True)
class Option:
    """One draft length K with what it earns and costs; K = 0 is plain decoding."""

    k: int
    committed: float
    cost: RoundCost
    gain: float
    """Marginal speed: ``s_K`` over the cost that position K adds (inf when it adds none)."""

    @property
    def speed(self) -> float:
        """Expected speed relative to plain decoding."""
        return self.cost.speed(self.committed)


PLAIN = Option(0, 1.0, RoundCost(draft=0.0, verify=1.0), float("inf"))
"""Plain decoding as an option: one token for one step."""


def sequential(step: float) -> Price:
    """Drafting one token after another: k passes of ``step`` plain steps each."""
    return lambda k: step * k


def block(cost: float) -> Price:
    """Drafting all tokens in one pass of ``cost`` plain steps, whatever k."""
    return lambda k: cost if k else 0.0


def verify_price(curve: CostCurve, *, context: int | None = None, free: int = 0) -> Price:
    """Verifying k drafts: a pass of k + 1 rows, one less when the first draft is free."""
    return lambda k: curve.relative(max(1, k + 1 - free), context)


def options(
    survival: Sequence[float],
    draft: Price,
    verify: Price,
    *,
    other: float = 0.0,
    kept: float = 1.0,
) -> tuple[Option, ...]:
    """Every draft length from 0 to ``len(survival)`` with its earnings and price.

    ``kept`` is the share of a round's tokens that the end of an answer leaves standing.
    ``gain`` shows the marginal rule: position K is worth adding while its gain exceeds the speed
    without it (SMART; ALGORITHMS 8.2).
    """
    survival = checked_survival(survival)
    ladder = [PLAIN]
    for k in range(1, len(survival) + 1):
        cost = RoundCost(draft(k), verify(k), other)
        added = cost.break_even - ladder[-1].cost.break_even
        committed = kept * expected_committed(survival[:k])
        earned = committed - ladder[-1].committed
        gain = earned / added if added > 0 else float("inf")
        ladder.append(Option(k, committed, cost, gain))
    return tuple(ladder)


def best_k(
    survival: Sequence[float],
    draft: Price,
    verify: Price,
    *,
    other: float = 0.0,
    kept: float = 1.0,
) -> Option:
    """The draft length with the highest expected speed; the shorter one on a tie.

    Every length is compared rather than stopping at the first position that does not gain: a
    block drafter's first position pays for the whole draft pass, and a measured curve is uneven
    (8 rows can be cheaper than 6).

    >>> flat = CostCurve.of({1: 0.024, 5: 0.026})
    >>> best_k([1.0, 0.38, 0.1, 0.02], block(1.0), verify_price(flat, free=1)).k
    3
    >>> best_k([0.3, 0.1], sequential(0.5), verify_price(flat)).k   # nothing pays: plain
    0
    """
    rungs = options(survival, draft, verify, other=other, kept=kept)
    return max(rungs, key=lambda option: option.speed)
