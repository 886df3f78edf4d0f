"""How a block drafter's rows become drafts: labels, anchoring, and which row says what.

Offsets count from the root: the root has offset 0, the mask at position ``root + j`` offset j,
and draft j is the token at offset j. With ``same`` labels a mask names the token at its own
offset, with ``shift`` the one behind it, as the backbone has always done (ALGORITHMS 1.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from breakeven.verifier.rows import BlockShape

MOST_MASKS = 1024
"""The widest block: a pass computes what each of its rows sees of all others."""

Labels = Literal["same", "shift"]
Anchoring = Literal["none", "root_in_block", "first_from_verifier"]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """What a block drafter was trained for, and therefore how it must draft.

    ``gated``: the adapter acts in the block only, over the verifier's own keys and values (V2);
    else it acts everywhere, over a cache of its own (V1). ``anchoring`` (ALGORITHMS 1.9) is
    ``none`` (the root ends the prefix), ``root_in_block``, or ``first_from_verifier``: the root
    row, gate off, gives the first draft, which is the verifier's own and free. ``last``: masks
    enter at the last so many layers (None: with the embeddings).
    """

    masks: int = 3
    causal: bool = False
    labels: Labels = "shift"
    anchoring: Anchoring = "first_from_verifier"
    gated: bool = True
    last: int | None = None

    @property
    def fault(self) -> str | None:
        """Why there is no such drafter; None if there is.

        >>> BlockPlan(gated=False).fault
        "anchoring 'first_from_verifier' needs a gated adapter"
        """
        if self.anchoring == "first_from_verifier" and not self.gated:
            return "anchoring 'first_from_verifier' needs a gated adapter"
        if self.last is not None and (not self.gated or self.anchoring == "root_in_block"):
            return "masks that enter late need a gated adapter and the root before the block"
        if self.gated and self.labels == "shift" and self.anchoring == "none":
            return (
                "with shifted labels the ungated root row gives the first draft: that is "
                "anchoring 'first_from_verifier'"
            )
        return None

    @property
    def shape(self) -> BlockShape:
        """The rows of the block."""
        return BlockShape(self.masks, self.anchoring == "root_in_block", self.causal)

    @property
    def shift(self) -> int:
        """1 if a row names the token behind it, else 0."""
        return int(self.labels == "shift")

    @property
    def free(self) -> int:
        """Leading drafts that are the verifier's own: 0 or 1."""
        return int(self.anchoring == "first_from_verifier")

    @property
    def most(self) -> int:
        """The largest K.

        >>> BlockPlan(masks=3).most, BlockPlan(16, labels="same", anchoring="none").most
        (4, 16)
        """
        return self.masks + self.shift

    @property
    def guesses(self) -> range:
        """Offsets of the drafts that verification may reject."""
        return range(1 + self.free, self.most + 1)

    def source(self, offset: int) -> int:
        """The offset of the row that names the token at ``offset``.

        >>> shifted = BlockPlan(masks=3)
        >>> [shifted.source(j) for j in (1, 2, 3, 4)]
        [0, 1, 2, 3]
        >>> [BlockPlan(3, labels="same").source(j) for j in (1, 2, 3)]
        [0, 2, 3]
        """
        return 0 if self.free and offset == 1 else offset - self.shift

    def masks_for(self, k: int) -> int:
        """Mask rows that K drafts need: all of them, unless masks see only earlier ones."""
        return min(k - self.shift, self.masks) if self.causal else self.masks
