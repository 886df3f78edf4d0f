"""Drafters whose one pass judges several positions at once, each by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from breakeven.drafters.base import Context, Drafter

Candidates = Sequence[tuple[int, float]]
"""Tokens of one position with their probabilities, the likeliest first."""


class MarginalDrafter(Drafter):
    """Gives candidates for each position of a block: what a tree can be made of."""

    @abstractmethod
    def candidates(self, context: Context, k: int, top: int) -> list[list[Candidates]]:
        """``[b][position]``: up to ``top`` candidates for each of at most ``k`` positions.

        With ``free`` = 1 the first position has one candidate, the verifier's own token.
        """
