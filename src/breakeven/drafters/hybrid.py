"""``hybrid``: looked-up drafts where a long match promises much, a trained drafter elsewhere.

Looking up costs nothing, so it goes first; the trained drafter's passes are bought only in rounds
where some request has no match of ``match`` tokens. The trained drafter is told of every round.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from breakeven.core import Draft, Verified
from breakeven.drafters.base import Context, Drafter, LookupDrafter
from breakeven.drafters.quantized import Quantized
from breakeven.drafters.registry import load_trained
from breakeven.drafters.suffix import Suffix
from breakeven.drafters.wrapper import Wrapper
from breakeven.errors import DrafterError
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier

LONG = 4
"""Tokens of a match that promises more than a trained drafter."""


class Hybrid(Wrapper):
    """A lookup drafter in front of one that takes passes; its traits are the latter's."""

    name = "hybrid"

    def __init__(self, lookup: LookupDrafter, trained: Drafter, match: int = LONG) -> None:
        """A match of ``match`` tokens or more is taken."""
        if match < 1:
            raise DrafterError(f"hybrid: match {match}: give 1 token or more")
        super().__init__(trained)
        self.looks_up = True
        self.lookup, self._match = lookup, match

    def reserve(self, batch: int, capacity: int) -> None:
        """Make room in both."""
        self.lookup.reserve(batch, capacity)
        super().reserve(batch, capacity)

    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """Both read the prompts."""
        self.lookup.begin(context, start, hidden)
        super().begin(context, start, hidden)

    def glimpse(self, context: Context, k: int) -> list[Draft] | None:
        """The looked-up drafts, where every request has a long enough match."""
        drafts = self.lookup.glimpse(context, k)
        sure = all(d.tokens and (d.match or 0) >= self._match for d in drafts)
        return drafts if sure else None

    def propose(self, context: Context, k: int) -> list[Draft]:
        """The looked-up drafts if all are confident, else the trained drafter's."""
        seen = self.glimpse(context, k)
        return super().propose(context, k) if seen is None else seen

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        """Both learn the outcome, whoever drafted."""
        self.lookup.observe(context, verified, hidden)
        super().observe(context, verified, hidden)

    def end(self, context: Context, slot: int) -> None:
        """Both hear of the answer."""
        self.lookup.end(context, slot)
        super().end(context, slot)

    def forget(self) -> None:
        """Both."""
        self.lookup.forget()
        super().forget()

    def move(self, source: int, target: int) -> None:
        """The request has moved in both."""
        self.lookup.move(source, target)
        super().move(source, target)

    @classmethod
    def of(cls, verifier: Verifier, match: int = LONG) -> Hybrid:
        """``suffix`` in front of ``quantized``, which need no folder."""
        return cls(Suffix(), Quantized.of(verifier), match)

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> Hybrid:
        """As :meth:`of`, but sure of no match: a round that drafts, its price at the most."""
        return cls(Suffix(), Quantized.of(verifier), match=sys.maxsize)

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        match: int = LONG,
    ) -> Hybrid:
        """``suffix`` in front of whatever trained drafter ``folder`` holds."""
        return cls(Suffix(), load_trained(folder, verifier, identity), match)
