"""Trees from a block drafter's candidates: best first, at no cost beyond the one draft pass.

A block pass gives, for each position, tokens with probabilities. They are marginals: what is
likely two positions on does not depend here on which token comes next. The tree of a given number
of nodes that is accepted furthest on average holds the nodes with the highest products of
probabilities along their paths (DDTree, arXiv 2604.12989; ALGORITHMS 3.5).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path

from breakeven.core import Draft
from breakeven.drafters.base import Context, Sketch
from breakeven.drafters.marginals import Candidates, MarginalDrafter
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import load_trained
from breakeven.drafters.wrapper import Wrapper
from breakeven.errors import DrafterError
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier

TOP = 3
"""Candidates of a position that enter a tree."""


def best_first(positions: Sequence[Candidates], budget: int, *, free: int = 0) -> Draft:
    """The ``budget`` nodes with the largest products of probabilities, parents first.

    A tree without branches is returned as a chain.

    >>> best_first([[(5, 0.6), (6, 0.3)], [(7, 0.9), (8, 0.1)]], 3).tokens
    (5, 7, 6)
    >>> best_first([[(5, 0.6)], [(7, 0.9)]], 8).parents is None
    True
    """
    tokens: list[int] = []
    parents: list[int] = []
    shares: list[float] = []
    heap: list[tuple[float, int, int, int, float]] = []  # -product, depth, rank, parent, before

    def offer(depth: int, rank: int, parent: int, before: float) -> None:
        if depth < len(positions) and rank < len(positions[depth]):
            product = before * positions[depth][rank][1]
            heapq.heappush(heap, (-product, depth, rank, parent, before))

    offer(0, 0, -1, 1.0)
    while heap and len(tokens) < budget:
        product, depth, rank, parent, before = heapq.heappop(heap)
        token, share = positions[depth][rank]
        tokens.append(token)
        parents.append(parent)
        shares.append(share)
        offer(depth, rank + 1, parent, before)
        offer(depth + 1, 0, len(tokens) - 1, -product)
    chain = parents == list(range(-1, len(tokens) - 1))
    return Draft(tuple(tokens), free, None if chain else tuple(parents), tuple(shares))


class Tree(Wrapper):
    """Verifies a tree of up to K nodes where its block drafter alone would draft a chain of K."""

    name = "tree"

    def __init__(self, block: MarginalDrafter, top: int = TOP) -> None:
        """``top`` candidates of each position enter the tree."""
        if top < 1:
            raise DrafterError(f"tree: top {top}: give 1 candidate of each position, or more")
        super().__init__(block)
        self.block, self._top = block, top
        self.longest = None  # K counts nodes

    def propose(self, context: Context, k: int) -> list[Draft]:
        """Trees of at most ``k`` nodes; with ``top = 1`` the block drafter's chains."""
        depth = min(k, self.block.longest or k)
        found = self.block.candidates(context, depth, self._top)
        return [best_first(positions, k, free=self.free) for positions in found]

    def sketch(self, context: Context, k: int) -> Sketch | None:
        """None: trees are the host's business."""
        return None

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> Tree:
        """Trees of ``k`` nodes over a gated block of as many masks: no tree is deeper."""
        return cls(GatedPeftBD.untrained(verifier, k))

    @classmethod
    def load(
        cls, folder: Path, verifier: Verifier, identity: Identity | None = None, top: int = TOP
    ) -> Tree:
        """Trees of the block drafter that ``folder`` holds."""
        block = load_trained(folder, verifier, identity)
        if not isinstance(block, MarginalDrafter):
            raise DrafterError(
                f"{folder}: '{block.name}' gives no candidates for its positions; a tree needs a "
                "block drafter such as peft-bd-gated"
            )
        return cls(block, top)
