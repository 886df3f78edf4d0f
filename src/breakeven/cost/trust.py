"""Running trust: how often a drafted token of a given confidence is accepted, learned as it goes.

A drafter says how sure it is of each token, but what its word is worth depends on the drafter, the
verifier and the text. So acceptance is counted by confidence; a confidence that was never seen is
taken at its word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp

ODDS = (-2.0, -1.0, -0.5, 0.0, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0)
"""Log-odds of a confidence from which the next class of confidences begins."""
BOUNDS = tuple(1.0 / (1.0 + exp(-odds)) for odds in ODDS)
WORDS = tuple(
    1.0 / (1.0 + exp(-(low + high) / 2))
    for low, high in zip((-3.0, *ODDS), (*ODDS, 9.0), strict=True)
)
"""What a drafter says in the middle of each class."""
WORD_WORTH = 2.0
"""How many observations its word is worth."""
MEMORY = 0.998
"""What a count is worth after the next one of its class."""


class RunningTrust:
    """Acceptance by confidence, of tokens that all before were accepted.

    >>> trust = RunningTrust()
    >>> for _ in range(50):
    ...     trust.observe((0.9, 0.6), 1)
    >>> trust.rate(0.9) > 0.95 and trust.rate(0.6) < 0.05
    True
    """

    def __init__(self) -> None:
        self._right, self._tried = [0.0] * len(WORDS), [0.0] * len(WORDS)
        self._rates = list(WORDS)

    def rate(self, confidence: float) -> float:
        """How likely a token of this confidence is accepted."""
        return self._rates[bisect_right(BOUNDS, confidence)]

    def observe(self, confidences: Sequence[float], accepted: int) -> None:
        """A draft's confidences, and how many of its tokens were accepted."""
        for index, confidence in enumerate(confidences[: accepted + 1]):
            cell = bisect_right(BOUNDS, confidence)
            self._right[cell] = self._right[cell] * MEMORY + (index < accepted)
            self._tried[cell] = self._tried[cell] * MEMORY + 1.0
            right, tried = self._right[cell], self._tried[cell]
            self._rates[cell] = (right + WORD_WORTH * WORDS[cell]) / (tried + WORD_WORTH)
