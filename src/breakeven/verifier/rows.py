"""Row layouts: which rows enter a pass, at which positions, seeing what, adapter on or off.

Everything that distinguishes the drafting methods at the tensor level is built here, and both
training and decoding use the same builders (ALGORITHMS 1.4, 1.8, 1.9; checked in float64 by
``tests/test_rows.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.verifier.transfer import sent


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass over ``B`` requests, ``W`` rows each.

    A row sees cached rows and rows of its own request in the same pass, never another request.
    """

    token_ids: Tensor  # [B, W] long; ignored where ``masked``
    positions: Tensor  # [B, W] long, 0-based
    sees: Tensor  # [W, W] or [B, W, W] bool: row i attends to row j of this pass (diagonal True)
    past: Tensor | None = None  # [B, W] long: row i sees cached rows 0..past-1; None: all of them
    gate: Tensor | None = None  # [W] bool: adapter on; None: off everywhere
    masked: Tensor | None = None  # [W] or [B, W] bool: the input is the adapter's mask vector

    @property
    def batch(self) -> int:
        """Number of requests B."""
        return self.token_ids.shape[0]

    @property
    def width(self) -> int:
        """Rows per request W."""
        return self.token_ids.shape[1]

    def head(self, count: int) -> Rows:
        """The first ``count`` rows of each request, without gate and masks."""
        return Rows(
            self.token_ids[:, :count],
            self.positions[:, :count],
            self.sees[..., :count, :count],
            past=None if self.past is None else self.past[:, :count],
        )

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on a device."""
        return Rows(
            sent(self.token_ids, device),
            sent(self.positions, device),
            sent(self.sees, device),
            past=None if self.past is None else sent(self.past, device),
            gate=None if self.gate is None else sent(self.gate, device),
            masked=None if self.masked is None else sent(self.masked, device),
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


def tree(token_ids: Tensor, parents: Sequence[Sequence[int]], lengths: Tensor) -> Rows:
    """Token trees after each request's cached prefix: a row sees its ancestors and itself.

    ``token_ids`` is ``[B, W]``; ``parents[b][i]`` is the row that row i of request b follows, -1
    for the cached prefix, and stands before it. Rows past the end of ``parents[b]`` are padding.
    A chain of parents gives the very rows of :func:`chain` (ALGORITHMS 3.5).

    >>> rows = tree(torch.tensor([[7, 8, 9]]), [[-1, 0, 0]], torch.tensor([4]))
    >>> rows.positions.tolist(), rows.sees[0].int().tolist()
    ([[4, 5, 5]], [[1, 0, 0], [1, 1, 0], [1, 0, 1]])
    """
    batch, width = token_ids.shape
    sees = torch.eye(width, dtype=torch.bool).repeat(batch, 1, 1)
    depths = torch.zeros(batch, width, dtype=torch.long)
    for b, family in enumerate(parents):
        for row, parent in enumerate(family):
            if parent >= 0:
                sees[b, row] |= sees[b, parent]
                depths[b, row] = depths[b, parent] + 1
    return Rows(token_ids, lengths[:, None] + depths, sees)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The block that a draft pass puts behind the prefix.

    ``masks`` mask rows; ``rooted``: the root stands in front of them as a row of the block
    ("root in block"), else it is the last row of the prefix. Rows of a block see each other, or
    with ``causal`` only earlier ones.
    """

    masks: int
    rooted: bool = False
    causal: bool = False

    @property
    def width(self) -> int:
        """Rows of the block."""
        return self.masks + self.rooted

    def sees(self) -> Tensor:
        """``[width, width]`` visibility inside the block."""
        if self.causal:
            return causal(self.width)
        return torch.ones(self.width, self.width, dtype=torch.bool)

    def masked(self) -> Tensor:
        """``[width]``: which rows are masks when nothing of the block is known."""
        return torch.arange(self.width) >= self.rooted


def draft_block(
    stream: Tensor,
    lengths: Tensor,
    shape: BlockShape,
    *,
    counts: Tensor | None = None,
    block_ids: Tensor | None = None,
    masked: Tensor | None = None,
    gated: bool = True,
) -> Rows:
    """The draft pass of a block drafter: prefix rows the cache lacks, then the block.

    ``stream`` ``[B, S]`` are consecutive tokens behind the cached ``lengths`` (S may be 0), of
    which request b has ``counts[b]`` (default: all) and the rest is padding. ``block_ids`` and
    ``masked`` ``[B, width]`` say what is known inside the block (default: nothing but a root).
    ``gated``: the adapter is on in the block only, so stream rows are the verifier's own and see
    nothing of the block; else it is on everywhere.

    >>> block = draft_block(torch.tensor([[7]]), torch.tensor([3]), BlockShape(masks=2))
    >>> block.positions.tolist(), block.gate.tolist()
    ([[3, 4, 5]], [False, True, True])
    >>> block.sees.int().tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 1]]
    """
    batch, size = stream.shape
    width = size + shape.width
    if block_ids is None:
        block_ids = torch.zeros(batch, shape.width, dtype=torch.long)
    known = shape.masked().expand(batch, -1) if masked is None else masked
    ends = lengths + (size if counts is None else counts)
    before = lengths[:, None] + torch.arange(size)
    behind = ends[:, None] + torch.arange(shape.width)
    sees = causal(width)
    sees[size:, size:] = shape.sees()
    if counts is not None and bool((counts < size).any()):
        padding = torch.arange(size) >= counts[:, None]  # [B, S]
        sees = sees.repeat(batch, 1, 1)
        sees[:, size:, :size] &= ~padding[:, None]
    return Rows(
        token_ids=torch.cat((stream, block_ids), dim=1),
        positions=torch.cat((before, behind), dim=1),
        sees=sees,
        gate=torch.arange(width) >= (size if gated else 0),
        masked=torch.cat((torch.zeros(batch, size, dtype=torch.bool), known), dim=1),
    )


def noised_blocks(
    anchors: Tensor,
    shape: BlockShape,
    *,
    block_ids: Tensor | None = None,
    masked: Tensor | None = None,
) -> Rows:
    """Training's second stream: the blocks of several roots over one clean stream.

    ``anchors`` ``[B, A]`` are 0-based indices of roots in the clean stream, ``block_ids`` and
    ``masked`` ``[B, A, width]`` as in :func:`draft_block`. A block sees the clean rows a draft
    pass of that root would see (up to the root, or up to the row before it when ``rooted``) and
    itself, never another block. Returns ``[B, A * width]`` rows.

    >>> noised_blocks(torch.tensor([[3, 5]]), BlockShape(masks=2)).positions.tolist()
    [[4, 5, 6, 7]]
    """
    batch, blocks = anchors.shape
    width = blocks * shape.width
    starts = (anchors + 1 - int(shape.rooted)).repeat_interleave(shape.width, dim=1)  # [B, W]
    block_of = torch.arange(blocks).repeat_interleave(shape.width)
    sees = (block_of[:, None] == block_of[None, :]) & shape.sees().repeat(blocks, blocks)
    if block_ids is None:
        block_ids = torch.zeros(batch, blocks, shape.width, dtype=torch.long)
    known = shape.masked().expand(batch, blocks, -1) if masked is None else masked
    return Rows(
        token_ids=block_ids.reshape(batch, width),
        positions=starts + torch.arange(shape.width).repeat(blocks),
        sees=sees,
        past=starts,
        gate=torch.ones(width, dtype=torch.bool),
        masked=known.reshape(batch, width),
    )


def two_streams(texts: Tensor, blocks: Rows, *, gated: bool) -> Rows:
    """Clean stream and noised blocks in one pass, with nothing cached (ALGORITHMS 1.4).

    ``texts`` ``[B, L]`` are whole texts from position 0, right-padded, causal; ``blocks`` comes
    from :func:`noised_blocks`. With ``gated`` the clean rows run without the adapter, and the
    pass computes what :func:`noised_blocks` computes over the verifier's cache.
    """
    batch, length = texts.shape
    width = length + blocks.width
    assert blocks.past is not None
    assert blocks.masked is not None
    sees = torch.zeros(batch, width, width, dtype=torch.bool)
    sees[:, :length, :length] = causal(length)
    sees[:, length:, :length] = torch.arange(length) < blocks.past[:, :, None]
    sees[:, length:, length:] = blocks.sees
    clean = torch.zeros(batch, length, dtype=torch.bool)
    return Rows(
        token_ids=torch.cat((texts, blocks.token_ids), dim=1),
        positions=torch.cat((torch.arange(length).expand(batch, -1), blocks.positions), dim=1),
        sees=sees,
        gate=torch.arange(width) >= (length if gated else 0),
        masked=torch.cat((clean, blocks.masked), dim=1),
    )


def with_groups(chain_rows: Rows, shape: BlockShape, groups: int) -> Rows:
    """A verify pass with the next draft pass aboard, for every outcome (ALGORITHMS 1.11).

    Behind the ``W`` rows of the chain stand ``groups`` ≤ W blocks; group g belongs to the outcome
    that g drafts are accepted: its masks follow the chain's row g and see the cache, the rows
    0..g and themselves. The chain sees none of them.

    >>> rows = with_groups(chain(torch.tensor([[7, 8]]), torch.tensor([3])), BlockShape(1), 2)
    >>> rows.positions.tolist(), rows.gate.tolist()
    ([[3, 4, 4, 5]], [False, False, True, True])
    >>> rows.sees.int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    """
    assert not shape.rooted
    assert groups <= chain_rows.width
    batch, width = chain_rows.batch, chain_rows.width
    extra = groups * shape.masks
    group = torch.arange(groups).repeat_interleave(shape.masks)
    offsets = torch.arange(1, shape.masks + 1).repeat(groups)
    sees = torch.zeros(width + extra, width + extra, dtype=torch.bool)
    sees[:width, :width] = chain_rows.sees
    sees[width:, :width] = torch.arange(width) <= group[:, None]
    own = group[:, None] == group[None, :]
    sees[width:, width:] = own & shape.sees().repeat(groups, groups)
    gate = torch.arange(width + extra) >= width
    blank = torch.zeros(batch, extra, dtype=torch.long, device=chain_rows.token_ids.device)
    return Rows(
        token_ids=torch.cat((chain_rows.token_ids, blank), dim=1),
        positions=torch.cat((chain_rows.positions, chain_rows.positions[:, group] + offsets), 1),
        sees=sees,
        gate=gate,
        masked=gate,
    )
