"""Prompt lookup: continue as the context did the last time it said the same n tokens.

No model and no training, so it is the floor every trained drafter must beat. For ``n`` from
``longest`` down to ``shortest`` the most recent earlier occurrence of the last n tokens is
sought; what followed it is proposed (ALGORITHMS 6; the original takes the first occurrence).
"""

from __future__ import annotations

from breakeven.core import Draft
from breakeven.drafters.base import Context, Drafter


class NGram(Drafter):
    """Drafts by looking n-grams up in the request's own tokens."""

    name = "ngram"

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        self._longest, self._shortest = longest, shortest

    def propose(self, context: Context, k: int) -> list[Draft]:
        """Up to ``k`` tokens that followed the same n-gram before; nothing when it is new."""
        sizes = range(self._longest, self._shortest - 1, -1)
        return [Draft(tuple(lookup(tokens, k, sizes))) for tokens in context.tokens]


def lookup(tokens: list[int], k: int, sizes: range) -> list[int]:
    """The tokens after the most recent earlier occurrence of the longest matching suffix.

    >>> lookup([1, 2, 3, 9, 1, 2], k=3, sizes=range(2, 0, -1))
    [3, 9, 1]
    """
    for size in sizes:
        suffix = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == suffix:
                return tokens[start + size : start + size + k]
    return []
