"""Prompt lookup: continue as the context did the last time it said the same n tokens.

No model and no training, so it is the floor every trained drafter must beat. For ``n`` from
``longest`` down to ``shortest`` the most recent earlier occurrence of the last n tokens is
sought; what followed it is proposed (ALGORITHMS 6). The original takes the first occurrence and
needs all K tokens behind it; here the latest wins and a short continuation is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from breakeven.core import Draft
from breakeven.drafters.base import Context, LookupDrafter
from breakeven.errors import DrafterError

LONGEST_MATCH = 32
"""A match is not measured beyond so many tokens."""


class NGram(LookupDrafter):
    """Drafts by looking n-grams up in the request's own tokens."""

    name = "ngram"

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        """Matches of ``longest`` down to ``shortest`` tokens are looked for."""
        if not 1 <= shortest <= longest <= LONGEST_MATCH:
            raise DrafterError(
                f"ngram: matches of {shortest} (shortest) to {longest} (longest) tokens: give "
                f"1 <= shortest <= longest <= {LONGEST_MATCH}"
            )
        self._sizes = range(longest, shortest - 1, -1)
        self._indexes: list[Index] = []

    def reserve(self, batch: int, capacity: int) -> None:
        """An empty index for each request."""
        self._indexes = [Index(self._sizes) for _ in range(batch)]

    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """Forget who was in the slots before."""
        for slot in range(start, context.batch):
            self._indexes[slot] = Index(self._sizes)

    def glimpse(self, context: Context, k: int) -> list[Draft]:
        """Up to ``k`` tokens that followed the same n-gram before; nothing when it is new."""
        drafts = []
        for index, tokens in zip(self._indexes, context.tokens, strict=False):
            start, match = index.find(tokens)
            found = tokens[start : start + k] if match else []
            drafts.append(Draft(tuple(found), match=match))
        return drafts

    def move(self, source: int, target: int) -> None:
        """The index goes with the request."""
        self._indexes[target] = self._indexes[source]


class Index:
    """Where each n-gram of a growing text was last followed by something.

    >>> Index(range(2, 0, -1)).find([1, 2, 3, 9, 1, 2])  # what followed is at 2; 1, 2 matched
    (2, 2)
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> index of the token behind it
        self._read = 0

    def find(self, tokens: list[int]) -> tuple[int, int]:
        """Index of the token behind the latest earlier match of the end, and the match's length.

        The longest of the index's sizes that occurs decides which match; the length counts on
        beyond it. ``(0, 0)`` where even the last token is new. ``tokens`` must have grown since
        the last call, not changed.
        """
        for stop in range(max(1, self._read), len(tokens)):
            for size in self._sizes:
                if size <= stop:
                    self._after[tuple(tokens[stop - size : stop])] = stop
        self._read = len(tokens)
        for size in self._sizes:
            start = self._after.get(tuple(tokens[-size:]))
            if start is not None and size <= len(tokens):
                return start, common_end(tokens, start, size)
        return 0, 0


def common_end(tokens: Sequence[int], start: int, known: int) -> int:
    """How many tokens before ``start`` equal those at the end, at least ``known``."""
    most = min(start, LONGEST_MATCH)
    length = known
    while length < most and tokens[start - 1 - length] == tokens[-1 - length]:
        length += 1
    return length
