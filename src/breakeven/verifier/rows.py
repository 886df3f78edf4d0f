"""Row layouts: which rows enter a pass, at which positions, seeing what, adapter on or off.

Everything that distinguishes the drafting methods at the tensor level is built here, and both
training and decoding use the same builders (ALGORITHMS 1.4, 1.8, 1.9; checked in float64 by
``tests/test_rows.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass over ``B`` requests, ``W`` rows each.

    A row sees cached rows and rows of its own request in the same pass, never another request.
    """

    token_ids: Tensor  # [B, W] long; ignored where ``masked``
    positions: Tensor  # [B, W] long, 0-based
    sees: Tensor  # [W, W] bool: row i attends to row j of this pass (the diagonal is True)
    past: Tensor | None = None  # [B, W] long: row i sees cached rows 0..past-1; None: all of them
    gate: Tensor | None = None  # [W] bool: adapter on; None: off everywhere
    masked: Tensor | None = None  # [W] bool: the input is the adapter's mask vector

    @property
    def batch(self) -> int:
        """Number of requests B."""
        return self.token_ids.shape[0]

    @property
    def width(self) -> int:
        """Rows per request W."""
        return self.token_ids.shape[1]

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on a device."""
        return Rows(
            self.token_ids.to(device),
            self.positions.to(device),
            self.sees.to(device),
            past=None if self.past is None else self.past.to(device),
            gate=None if self.gate is None else self.gate.to(device),
            masked=None if self.masked is None else self.masked.to(device),
        )


def causal(width: int) -> Tensor:
    """``[W, W]`` lower-triangular visibility.

    >>> causal(2).int().tolist()
    [[1, 0], [1, 1]]
    """
    index = torch.arange(width)  # tril() would wake OpenMP's threads, which then spin for ms
    return index[:, None] >= index


def chain(token_ids: Tensor, lengths: Tensor) -> Rows:
    """Consecutive tokens after each request's cached prefix: prefill, plain steps, verification.

    ``token_ids`` is ``[B, W]``; ``lengths`` ``[B]`` is the cached length of each request, hence
    the position of its first row. Rows past a short request's end may hold anything: they see
    only earlier rows and are never committed.
    """
    width = token_ids.shape[1]
    positions = lengths[:, None] + torch.arange(width)
    return Rows(token_ids, positions, causal(width))


def draft_block(roots: Tensor, lengths: Tensor, masks: int, *, causal_block: bool = False) -> Rows:
    """The draft pass of a gated block drafter: the root row, gate 0, then ``masks`` mask rows.

    The root row sees the prefix and itself only, so its logits are the verifier's own (the free
    first token) and its key/value row may be kept. Mask rows see the prefix, the root and each
    other (or only earlier masks with ``causal_block``).

    >>> block = draft_block(torch.tensor([7]), torch.tensor([3]), masks=2)
    >>> block.positions.tolist(), block.gate.tolist()
    ([[3, 4, 5]], [False, True, True])
    >>> block.sees.int().tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 1]]
    """
    width = masks + 1
    token_ids = torch.zeros(len(roots), width, dtype=torch.long)
    token_ids[:, 0] = roots
    sees = causal(width)
    if not causal_block:
        sees[1:, 1:] = True
    gate = torch.ones(width, dtype=torch.bool)
    gate[0] = False
    positions = lengths[:, None] + torch.arange(width)
    return Rows(token_ids, positions, sees, gate=gate, masked=gate)


def noised_blocks(anchors: Tensor, masks: int, *, causal_block: bool = False) -> Rows:
    """Training's second stream: blocks of mask rows over a cached clean stream.

    ``anchors`` ``[B, K]`` holds, for each block, the 0-based index of the last clean row it may
    see (the root at inference). Block rows take positions ``anchor + 1 .. anchor + masks``, see
    clean rows ``0..anchor`` and their own block only. Returns ``[B, K * masks]`` rows; the rows
    of :func:`draft_block` with the same root see exactly the same keys.

    >>> noised_blocks(torch.tensor([[3, 5]]), masks=2).positions.tolist()
    [[4, 5, 6, 7]]
    """
    batch, blocks = anchors.shape
    width = blocks * masks
    offsets = torch.arange(1, masks + 1).repeat(blocks)
    starts = anchors.repeat_interleave(masks, dim=1)
    block_of = torch.arange(blocks).repeat_interleave(masks)
    sees = block_of[:, None] == block_of[None, :]
    if causal_block:
        sees &= causal(width)
    gate = torch.ones(width, dtype=torch.bool)
    token_ids = torch.zeros(batch, width, dtype=torch.long)
    return Rows(token_ids, starts + offsets, sees, past=starts + 1, gate=gate, masked=gate)
