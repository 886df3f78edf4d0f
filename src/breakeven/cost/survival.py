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
SHARED_MEMORY, OWN_MEMORY = 0.998, 0.98
"""What a count is worth after the next one: of the shared rates, of a request's tilt."""
FIRST_GUESS, FIRST_WORTH = 0.5, 2.0
"""The rate before anything was seen, and how many observations it is worth."""
NEIGHBOUR_WORTH = 8.0
"""How many observations the rate of the position or match before is worth."""
TILT_WORTH = 4.0
"""How many accepted tokens a tilt of 1 is worth."""
IDLE_MEMORY = 0.995
"""What is left of a tilt's evidence after a plain step: text changes."""


CLASSES = [-bisect_right(MATCHES, max(1, length)) for length in range(MATCHES[-1] + 1)]
"""Match length -> class, -1 for the shortest."""
FRESH = 8
"""Rounds for which a rate is used that nothing was added to."""
NOTHING = 1e-4
"""Survival that counts as none."""


@dataclass(slots=True)
class _Tally:
    accepted: float = 0.0
    expected: float = 0.0  # tries, or the tokens promised

    def add(self, right: bool, promised: float, memory: float) -> None:
        self.accepted = self.accepted * memory + right
        self.expected = self.expected * memory + promised


class RunningSurvival:
    """Conditional rates shared by all requests, and each request's tilt.

    >>> survival = RunningSurvival()
    >>> for _ in range(50):
    ...     survival.observe("a", drafted=2, accepted=1, free=0, match=None)
    >>> s = survival.ahead("a", 2, free=0, match=None)
    >>> s[0] > 0.95 and s[1] < 0.15
    True
    """

    def __init__(self) -> None:
        self._shared: dict[int, _Tally] = {}
        self._own: dict[str, _Tally] = {}
        self._rates: dict[int, float] = {}  # computed lately
        self._age = 0

    def ahead(self, request: str, k: int, *, free: int, match: int | None) -> list[float]:
        """``s_1 .. s_k`` of the next draft; ``match`` None: a draft that takes a pass."""
        tilt, survival, alive = self.tilt(request), [1.0] * min(free, k), 1.0
        for position in range(free + 1, k + 1):
            rate = self._rate(_cell(position, match))
            alive *= rate * tilt / (1.0 - rate + rate * tilt)
            if alive < NOTHING:
                return survival + [0.0] * (k + 1 - position)
            survival.append(alive)
        return survival

    def observe(
        self, request: str, *, drafted: int, accepted: int, free: int, match: int | None
    ) -> None:
        """A round's outcome: the first ``accepted`` of ``drafted`` tokens were right."""
        if drafted <= free:
            return
        own = self._own.setdefault(request, _Tally())
        for position in range(free + 1, min(drafted, accepted + 1) + 1):
            cell, right = _cell(position, match), position <= accepted
            own.add(right, self._rate(cell), OWN_MEMORY)
            self._shared.setdefault(cell, _Tally()).add(right, 1.0, SHARED_MEMORY)
            self._rates.pop(cell, None)
        self._age += 1
        if self._age % FRESH == 0:
            self._rates.clear()  # those drawn towards the rates that changed

    def idle(self, request: str) -> None:
        """A plain step was taken: a request's bad luck slowly loses its weight."""
        own = self._own.get(request)
        if own is not None:
            own.accepted *= IDLE_MEMORY
            own.expected *= IDLE_MEMORY

    def forget(self, request: str) -> None:
        """A request has ended; what it taught stays in the shared rates."""
        self._own.pop(request, None)

    def tilt(self, request: str) -> float:
        """How much luckier than the shared rates a request is; 1 at first."""
        own = self._own.get(request)
        if own is None:
            return 1.0
        return (own.accepted + TILT_WORTH) / (own.expected + TILT_WORTH)

    def _rate(self, cell: int) -> float:
        rate = self._rates.get(cell)
        if rate is None:
            rate = self._rates[cell] = self._estimate(cell)
        return rate

    def _estimate(self, cell: int) -> float:
        """A cell's rate, drawn towards that of the position or match before it."""
        before = cell - 1 if cell > 0 else cell + 1
        guess, worth = FIRST_GUESS, FIRST_WORTH
        if before in self._shared:
            guess, worth = self._rate(before), NEIGHBOUR_WORTH
        tally = self._shared.get(cell, _Tally())
        return (tally.accepted + worth * guess) / (tally.expected + worth)


def _cell(position: int, match: int | None) -> int:
    """1, 2, … for positions of drafts that take a pass; -1, -2, … for classes of matches."""
    if match is None:
        return position
    return CLASSES[min(match + position - 1, MATCHES[-1])]
