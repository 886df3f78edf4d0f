"""When to stop drafting token by token.

After each token the drafter has said how sure it is. The next token counts only if all before it
are accepted, and its pass takes time in which other tokens could be made. So drafting goes on
while, for some number of further tokens,

    the sum of the chances that each of them and all before it are accepted  >=  price * speed

with the speed of rounds so drafted (what is looked up comes at its place in the text, however fast
that is reached). Stopping at the average speed itself is what makes the average largest (a ratio's
optimum; ALGORITHMS 8.5's marginal gain, token by token).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from breakeven.core import Round
from breakeven.cost.trust import RunningTrust

MEMORY = 0.97
"""What tokens and time are worth after the next round."""
TRIED = 10.0
"""Tokens for which the next one's chance is guessed, before any was judged."""
GUESS = 0.9
"""That guess."""


class Share:
    """A running ratio of two sums.

    >>> share = Share(1.0, 2.0)
    >>> share.value
    0.5
    """

    __slots__ = ("_memory", "_of", "_part")

    def __init__(self, part: float, of: float, memory: float = MEMORY) -> None:
        self._part, self._of, self._memory = part, of, memory

    def add(self, part: float, of: float) -> None:
        """Take one more pair."""
        self._part = self._part * self._memory + part
        self._of = self._of * self._memory + of

    @property
    def value(self) -> float:
        """The ratio now."""
        return self._part / self._of


class Stopping:
    """What is known of the drafter's word, of the speed, and of the price of rounds so drafted.

    Prices are in plain steps.
    """

    def __init__(self) -> None:
        self.trust = RunningTrust()
        self._next = Share(GUESS * TRIED, TRIED, 0.998)
        self._speed = Share(1.0, 1.0)
        self._price: Share | None = None

    @property
    def price(self) -> float | None:
        """The usual price of a round that stops by itself; None before there was one."""
        return self._price.value if self._price else None

    def enough(self, confidences: Sequence[Sequence[float]], prices: Sequence[float]) -> bool:
        """Whether further tokens would earn too little, however many.

        A request without confidences has nothing more to earn, but its rows cost as before.
        ``prices[i]`` is the price of the i-th, in plain steps.
        """
        alive = sum(prod(map(self.trust.rate, own)) for own in confidences if own)
        worth, following = max(1.0, self._speed.value) * len(confidences), self._next.value
        earned = spent = 0.0
        for price in prices:
            alive *= following
            earned += alive
            spent += price * worth
            if earned >= spent:
                return False
        return True

    def observe(self, rounds: Sequence[Round], price: float) -> None:
        """Rounds of one pass, each at ``price``, whose drafts could stop by themselves."""
        self._speed.add(sum(r.committed for r in rounds), price * len(rounds))
        if self._price is None:
            self._price = Share(price, 1.0)
        else:
            self._price.add(price, 1.0)
        for r in rounds:
            counted = min(r.accepted, r.committed)
            self.trust.observe(r.confidences, r.accepted)
            self._next.add(counted, min(r.drafted, counted + 1))
