"""Policies without memory: always the same length, or cut where the drafter doubts itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from breakeven.core import Choice, Draft
from breakeven.decode.policy.base import Policy, Prospect


class Fixed(Policy):
    """Always ``k`` tokens."""

    def __init__(self, k: int) -> None:
        self.longest = k

    def choose(self, prospects: Sequence[Prospect], context: int) -> Choice:
        """The same for ever."""
        return Choice(self.longest)


class Confidence(Fixed):
    """At most ``k`` tokens, while the product of the drafter's confidences is ≥ ``threshold``.

    A sequential drafter stops there; of a block the rest is cut, which saves rows of the verify
    pass. Drafts without confidences are left whole, and the free token of a block always stays.

    >>> Confidence(4, 0.4).trim(Draft((5, 6, 7), confidences=(0.9, 0.5, 0.5))).tokens
    (5, 6)
    """

    def __init__(self, k: int, threshold: float = 0.4) -> None:
        super().__init__(k)
        self.threshold = threshold

    def enough(self, confidences: Sequence[Sequence[float]]) -> bool:
        """Once every request's product is too small."""
        return all(prod(own) < self.threshold for own in confidences if own)

    def trim(self, draft: Draft) -> Draft:
        """The tokens before the first whose product of confidences is too small."""
        products: list[float] = []
        for index, confidence in enumerate(draft.confidences):
            parent = index - 1 if draft.parents is None else draft.parents[index]
            products.append(confidence * (1.0 if parent < 0 else products[parent]))
            if index >= draft.free and products[-1] < self.threshold:
                return draft.clipped(index)
        return draft
