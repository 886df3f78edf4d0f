"""How many rounds an answer of so many tokens takes, and what they cost.

The last round is cut at the limit, so an answer of T tokens takes more than T / E[N] rounds:
the shorter the answer and the longer the drafts, the more. No more is drafted than the answer has
room for, so the last rounds are cheaper, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from breakeven.cost.breakeven import checked_survival


def committed_distribution(survival: Sequence[float]) -> tuple[float, ...]:
    """Probabilities that a round commits 1, 2, … K + 1 tokens, rounds being independent.

    >>> committed_distribution([0.5, 0.25])
    (0.5, 0.25, 0.25)
    """
    steps = (1.0, *checked_survival(survival), 0.0)
    return tuple(a - b for a, b in pairwise(steps))


def expected_price(survival: Sequence[float], tokens: int, price: Callable[[int], float]) -> float:
    """Mean price of all rounds until ``tokens`` tokens are there, by recursion over what is left.

    ``price`` is that of a round of so many drafts; with r tokens left there are at most r - 1.

    >>> [expected_price([1.0], tokens, lambda drafts: 1.0) for tokens in (4, 5)]  # rounds alone
    [2.0, 3.0]
    >>> expected_price([1.0, 1.0], 5, lambda drafts: 1 + drafts)  # rounds of 3 and of 2 tokens
    5.0
    """
    chances, longest = committed_distribution(survival), len(survival)
    prices = [price(drafts) for drafts in range(longest + 1)]
    left = [0.0]
    for count in range(1, tokens + 1):
        after = sum(p * left[max(0, count - n)] for n, p in enumerate(chances, start=1))
        left.append(prices[min(longest, count - 1)] + after)
    return left[tokens]
