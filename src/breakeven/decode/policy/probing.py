"""When to try drafting again although it is not predicted to pay.

A request that starts badly is not condemned: after a wait it is tried once more, the wait doubling
with each failure and starting over after a success. What failed tries cost beyond plain decoding
is entered against a budget, a small share of all the time spent, so that tries stay cheap on any
text.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_WAIT, LAST_WAIT = 4, 64
"""Plain steps before the first try, and the most there are between two."""
SHARE = 0.01
"""Of all time, what failed tries may cost."""
CREDIT = 2.0
"""Plain steps that tries may cost before the share has earned anything."""
MEMORY = 0.999
"""What spending and earning are worth after the next round."""


@dataclass(slots=True)
class _Patience:
    wait: int = FIRST_WAIT
    waited: int = 0


class Probing:
    """The waits of every request and the budget they share."""

    def __init__(self) -> None:
        self._patience: dict[str, _Patience] = {}
        self._owed = 0.0  # seconds lost by tries, less what the share has earned

    def due(self, request: str, cost: float, plain: float) -> bool:
        """Whether ``request`` has waited long enough and a try that loses ``cost`` s is affordable.

        ``plain`` is the price of a plain step in seconds.
        """
        patience = self._patience.setdefault(request, _Patience())
        return patience.waited >= patience.wait and self._owed + cost <= CREDIT * plain

    def waited(self, request: str, plain: float) -> None:
        """A plain step was taken."""
        self._patience.setdefault(request, _Patience()).waited += 1
        self.passed(plain)

    def tried(self, request: str, lost: float) -> None:
        """A try was made; it ``lost`` so many seconds (below 0: it won)."""
        patience = self._patience.setdefault(request, _Patience())
        patience.wait = FIRST_WAIT if lost <= 0 else min(LAST_WAIT, 2 * patience.wait)
        patience.waited = 0
        self._owed += max(0.0, lost)

    def passed(self, seconds: float) -> None:
        """Time went by, and the budget grew by its share."""
        self._owed = max(0.0, self._owed * MEMORY - SHARE * seconds)

    def forget(self, request: str) -> None:
        """A request has ended."""
        self._patience.pop(request, None)
