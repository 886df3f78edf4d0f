"""Running survival: how likely the next drafted tokens are to be accepted, learned round by round.

What is learned is the conditional rate: a token is accepted, given that those before it were.
Drafts that took a pass have one rate for each position. Drafts that were looked up have one for
each length of the match, and every accepted token makes the match longer by one, so few rates say
everything about drafts of any length.

Rates are shared by all requests and forget slowly. A request's own luck is one number, its
*tilt*: accepted tokens over those that the shared rates promised, forgetting fast. It multiplies
the odds of every rate.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

MATCHES = (1, 2, 3, 4, 5, 7, 10, 15, 23)
"""Shortest match of each class of match lengths."""
SHARED_MEMORY, OWN_MEMORY = 0.998, 0.95
"""What a count is worth after the next one: of the shared rates, of a request's tilt."""
FIRST_GUESS, GUESSES = 0.5, 2.0
"""The rate before anything was seen, and how many observations it is worth."""
TILT_GUESSES = 2.0
"""How many accepted tokens a tilt of 1 is worth."""


@dataclass(slots=True)
class _Tally:
    accepted: float = 0.0
    expected: float = 0.0  # tries, or the tokens promised

    def forget(self, memory: float) -> None:
        self.accepted *= memory
        self.expected *= memory


class RunningSurvival:
    """Conditional rates shared by all requests, and each request's tilt.

    >>> survival = RunningSurvival()
    >>> for _ in range(50):
    ...     survival.observe("a", drafted=2, accepted=1, free=0, match=None)
    >>> s = survival.ahead("a", 2, free=0, match=None)
    >>> s[0] > 0.95 and s[1] < 0.05
    True
    """

    def __init__(self) -> None:
        self._shared: dict[int, _Tally] = {}
        self._own: dict[str, _Tally] = {}

    def ahead(self, request: str, k: int, *, free: int, match: int | None) -> list[float]:
        """``s_1 .. s_k`` of the next draft; ``match`` None: a draft that takes a pass."""
        tilt, survival, alive = self.tilt(request), [], 1.0
        for position in range(1, k + 1):
            if position > free:
                alive *= _tilted(self._rate(_cell(position, match)), tilt)
            survival.append(alive)
        return survival

    def observe(
        self, request: str, *, drafted: int, accepted: int, free: int, match: int | None
    ) -> None:
        """A round's outcome: the first ``accepted`` of ``drafted`` tokens were right."""
        own = self._own.setdefault(request, _Tally())
        for position in range(free + 1, min(drafted, accepted + 1) + 1):
            cell, right = _cell(position, match), position <= accepted
            own.forget(OWN_MEMORY)
            own.accepted += right
            own.expected += self._rate(cell)
            shared = self._shared.setdefault(cell, _Tally())
            shared.forget(SHARED_MEMORY)
            shared.accepted += right
            shared.expected += 1

    def forget(self, request: str) -> None:
        """A request has ended; what it taught stays in the shared rates."""
        self._own.pop(request, None)

    def tilt(self, request: str) -> float:
        """How much luckier than the shared rates a request is; 1 at first."""
        own = self._own.get(request)
        if own is None:
            return 1.0
        return (own.accepted + TILT_GUESSES) / (own.expected + TILT_GUESSES)

    def _rate(self, cell: int) -> float:
        """A cell's rate, drawn towards that of the position or match before it."""
        tally = self._shared.get(cell)
        if tally is not None and tally.expected > 20 * GUESSES:
            return tally.accepted / tally.expected
        before = cell - 1 if cell > 0 else cell + 1  # towards the first of its kind
        guess = self._rate(before) if before in self._shared else FIRST_GUESS
        if tally is None:
            return guess
        return (tally.accepted + GUESSES * guess) / (tally.expected + GUESSES)


def _cell(position: int, match: int | None) -> int:
    """1, 2, … for positions of drafts that take a pass; -1, -2, … for classes of matches."""
    if match is None:
        return position
    return -bisect_right(MATCHES, max(1, match + position - 1))


def _tilted(rate: float, tilt: float) -> float:
    return rate * tilt / (1.0 - rate + rate * tilt)
