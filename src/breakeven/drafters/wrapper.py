"""A drafter around another: everything goes through to it but what a subclass changes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from breakeven.core import Draft, Verified
from breakeven.drafters.base import Aboard, Boarding, Context, Drafter, Sketch
from breakeven.verifier.rows import Rows


class Wrapper(Drafter):
    """Forwards every hook of :class:`Drafter` to ``inner`` and has its traits."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self.needs_hidden, self.free, self.sequential = (
            inner.needs_hidden, inner.free, inner.sequential,
        )  # fmt: skip
        self.longest, self.scratch_rows = inner.longest, inner.scratch_rows
        self.looks_up, self.aboard = inner.looks_up, inner.aboard

    def reserve(self, batch: int, capacity: int) -> None:
        """The inner drafter's."""
        self.inner.reserve(batch, capacity)

    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """The inner drafter's."""
        self.inner.begin(context, start, hidden)

    def glimpse(self, context: Context, k: int) -> list[Draft] | None:
        """The inner drafter's."""
        return self.inner.glimpse(context, k)

    def propose(self, context: Context, k: int) -> list[Draft]:
        """The inner drafter's."""
        return self.inner.propose(context, k)

    def sketch(self, context: Context, k: int) -> Sketch | None:
        """The inner drafter's."""
        return self.inner.sketch(context, k)

    def draft_along(self, context: Context, drafts: Sequence[Draft]) -> None:
        """The inner drafter's."""
        self.inner.draft_along(context, drafts)

    def board(self, context: Context, rows: Rows) -> Boarding:
        """The inner drafter's."""
        return self.inner.board(context, rows)

    def land(self, aboard: Aboard, accepted: Tensor, tokens: Tensor) -> None:
        """The inner drafter's."""
        self.inner.land(aboard, accepted, tokens)

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        """The inner drafter's."""
        self.inner.observe(context, verified, hidden)

    def end(self, context: Context, slot: int) -> None:
        """The inner drafter's."""
        self.inner.end(context, slot)

    def forget(self) -> None:
        """The inner drafter's."""
        self.inner.forget()

    def move(self, source: int, target: int) -> None:
        """The inner drafter's."""
        self.inner.move(source, target)


class Counterfeit(Wrapper):
    """A wrapper that changes the tokens: what ``inner`` computed for its own is of no use.

    So no states of it ride in the verify pass, and tokens go through the host.
    """

    def __init__(self, inner: Drafter) -> None:
        super().__init__(inner)
        self.looks_up = False

    def glimpse(self, context: Context, k: int) -> list[Draft] | None:
        """Nothing is known before :meth:`propose`."""
        return None

    def sketch(self, context: Context, k: int) -> Sketch | None:
        """Nothing stays on the device."""
        return None

    def board(self, context: Context, rows: Rows) -> Boarding:
        """Rows of its own may ride, states may not."""
        return Boarding(rows) if self.aboard == "states" else self.inner.board(context, rows)
