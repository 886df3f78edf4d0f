"""The block while it is being denoised: what is filled in, and when to stop (ALGORITHMS 1.10)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from breakeven.drafters.block_plan import BlockPlan
from breakeven.verifier.rows import BlockShape


class Canvas:
    """The tokens of one block per request, masks where nothing is decided.

    ``shape`` may have fewer masks than the plan. After each pass but the last, :meth:`fill` puts
    the most confident of the tokens it named into the block: ``ceil(masks / steps)`` of them
    with ``refill="masked"``; with ``refill="all"`` all of them, to be named anew.
    """

    def __init__(
        self, plan: BlockPlan, shape: BlockShape, roots: Tensor, *, steps: int, refill: str
    ) -> None:
        self.plan, self.shape = plan, shape
        self._left, self._refill = min(steps, max(1, shape.masks)) - 1, refill
        self._portion = math.ceil(shape.masks / (self._left + 1))
        batch = len(roots)
        self.ids = torch.zeros(batch, shape.width, dtype=torch.long)  # [B, width]
        self.masked = shape.masked().repeat(batch, 1)  # [B, width]
        if shape.rooted:
            self.ids[:, 0] = roots

    @property
    def finished(self) -> bool:
        """Whether the next pass is the last."""
        return self._left == 0

    def sources(self, counts: Tensor, size: int) -> Tensor:
        """``[B, most]``: the pass's rows that name the tokens at offsets 1.. of each request.

        ``counts[b]`` of the ``size`` prefix rows are real.
        """
        offsets = range(1, self.shape.masks + self.plan.shift + 1)
        at = torch.tensor([self.plan.source(offset) for offset in offsets])
        behind = size + at - 1 + self.shape.rooted
        inside = (at > 0) | torch.tensor(self.shape.rooted)
        return torch.where(inside, behind.expand(len(counts), -1), (counts - 1)[:, None])

    def fill(self, named: Tensor, sure: Tensor) -> None:
        """Write tokens ``[B, most]`` into the block where it was most ``sure`` of them."""
        self._left -= 1
        first = int(self.shape.rooted)
        masks = self.shape.masks
        if self._refill == "all":
            self.ids[:, first:] = named[:, :masks]
            self.masked[:] = False
            return
        sure = sure[:, :masks].clone()
        if self.plan.free:
            sure[:, 0] = math.inf  # the verifier's own token is known
        sure[~self.masked[:, first:]] = -math.inf  # filled before: they stay
        best = sure.topk(min(self._portion, masks), dim=1).indices + first
        decided = self.masked.gather(1, best)  # where fewer masks than the portion are left
        old = self.ids.gather(1, best)
        self.ids.scatter_(1, best, torch.where(decided, named.gather(1, best - first), old))
        self.masked.scatter_(1, best, torch.zeros_like(decided))

    def drafts(self, named: Tensor) -> Tensor:
        """``[B, most]`` drafts: what was filled in and kept, else what the last pass named."""
        if self._refill == "all":
            return named
        first, masks = int(self.shape.rooted), self.shape.masks
        kept = torch.where(self.masked[:, first:], named[:, :masks], self.ids[:, first:])
        return torch.cat((kept, named[:, masks:]), dim=1)
