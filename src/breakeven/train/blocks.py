"""Which blocks a text is cut into at a step: roots, masked positions, labels (ALGORITHMS 1.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.drafters.block_plan import BlockPlan
from breakeven.train.randomness import own_generator

Starts = Literal["random", "grid"]


@dataclass(frozen=True, slots=True)
class Blocks:
    """``A`` blocks of each of ``B`` texts (``[B, L]`` right-padded, of ``lengths``)."""

    anchors: Tensor  # [B, A] long: index of the root, 0 where there is no block
    ids: Tensor  # [B, A, width] long: the true tokens of the block's rows
    masked: Tensor  # [B, A, width] bool: rows whose token is hidden
    labels: Tensor  # [B, A, G] long: tokens at the guessed offsets, -1 where not scored
    covered: int  # tokens of the texts at guessed offsets, hidden or shown

    @property
    def scored(self) -> Tensor:
        """``[B, A, G]`` bool."""
        return self.labels >= 0


def cut(
    plan: BlockPlan,
    texts: Tensor,
    lengths: Tensor,
    anchors: Tensor,
    hidden: Tensor,
) -> Blocks:
    """Blocks behind ``anchors`` ``[B, A]`` (-1: none); ``hidden`` ``[B, A, masks]`` bool.

    A guess is scored when its token is hidden or lies behind the block, and inside the text.
    """
    batch, count = anchors.shape
    exists = anchors >= 0
    roots = anchors.clamp(min=0)
    last = texts.shape[1] - 1

    def tokens(offsets: Tensor) -> tuple[Tensor, Tensor]:
        index = roots[:, :, None] + offsets
        found = texts.gather(1, index.clamp(max=last).flatten(1)).view(batch, count, -1)
        return found, index < lengths[:, None, None]

    shape = plan.shape
    ids, inside = tokens(torch.arange(1 - shape.rooted, plan.masks + 1))
    hidden = hidden | ~inside[:, :, int(shape.rooted) :]  # what no text has cannot be shown
    front = torch.zeros(batch, count, int(shape.rooted), dtype=torch.bool)
    labels, real = tokens(torch.tensor(list(plan.guesses)))
    behind = torch.ones(batch, count, plan.shift, dtype=torch.bool)
    open_ = torch.cat((hidden, behind), dim=2)[:, :, plan.free :]
    scored = exists[:, :, None] & real & open_
    covered = int((exists[:, :, None] & real).sum())
    masked = torch.cat((front, hidden), 2)
    return Blocks(roots, ids, masked, torch.where(scored, labels, -1), covered)


def possible(plan: BlockPlan, row: Row, starts: Starts) -> Tensor:
    """Indices of all roots with something to guess behind them, in a text of ``row``.

    ``random``: every token of the continuation, as decoding does. ``grid``: blocks tile the
    continuation, the first root is the last token of the prompt.
    """
    first, length = len(row.prompt_ids), len(row.prompt_ids) + len(row.continuation_ids)
    end = length - plan.guesses.start
    if starts == "grid":
        return torch.arange(first - 1, max(first - 1, end), plan.masks)
    return torch.arange(first, max(first, end))


def draw_anchors(
    plan: BlockPlan,
    rows: Sequence[Row],
    count: int,
    starts: Starts,
    generator: torch.Generator,
) -> Tensor:
    """``[B, A]`` roots, at most ``count`` of each text without replacement, -1 where fewer."""
    drawn = []
    for row in rows:
        roots = possible(plan, row, starts)
        order = torch.randperm(len(roots), generator=own_generator(generator, row, "anchors"))
        drawn.append(roots[order[:count]].sort().values)
    return torch.nn.utils.rnn.pad_sequence(drawn, batch_first=True, padding_value=-1)


def draw_hidden(
    size: tuple[int, int, int],
    ratio: tuple[float, float],
    rows: Sequence[Row],
    generator: torch.Generator,
) -> Tensor:
    """``[B, A, M]``: in each block a share ``u ~ U(ratio)`` of the masks, rounded up, is hidden."""
    low, high = ratio
    if low >= 1.0:
        return torch.ones(size, dtype=torch.bool)
    _, count, masks = size
    own = [own_generator(generator, row, "hidden") for row in rows]
    drawn = torch.stack([torch.rand(count, 1 + masks, generator=one) for one in own])
    share = low + (high - low) * drawn[:, :, :1]
    order = drawn[:, :, 1:].argsort(dim=-1).argsort(dim=-1)
    return order < (share * size[2]).ceil()
