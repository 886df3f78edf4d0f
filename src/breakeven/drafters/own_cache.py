"""The prefix as the adapter sees it: a second cache, for an adapter that acts in every row (V1).

Its keys and values are not the verifier's, so the prompt is read twice and memory doubles. It
holds committed tokens only; whatever was committed since the last draft pass is read in front of
the next block, in the same pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from breakeven.core import Phase
from breakeven.drafters.base import Context
from breakeven.verifier.cache import KVCache
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import BlockShape, draft_block

NOTHING = BlockShape(masks=0)


class OwnCache:
    """Keys and values of committed tokens, computed with the adapter on."""

    def __init__(self, adapter: RowLoRA) -> None:
        self._adapter = adapter
        self._batch, self._capacity = 0, 0
        self._cache: KVCache | None = None

    def reserve(self, batch: int, capacity: int) -> None:
        """Allocate at the first request."""
        self._batch, self._capacity, self._cache = batch, capacity, None

    def begin(self, context: Context, start: int) -> None:
        """Read the prompts of requests ``start..`` of the context, without their roots."""
        if self._cache is None:
            self._cache = context.verifier.new_cache(self._batch, self._capacity)
        self._cache.lengths[start : context.batch] = 0
        for slot in range(start, context.batch):
            self._read(context, slot, context.tokens[slot][:-1], Phase.PREFILL)

    def missing(self, context: Context, *, rooted: bool) -> tuple[list[list[int]], KVCache]:
        """Committed tokens not read yet, per request, and the cache they belong behind.

        The root is left out when it stands in the block (``rooted``). Requests that lag far
        behind (they went on without drafts) are brought closer first, each on its own.
        """
        assert self._cache is not None
        few = self._capacity - max(map(len, context.tokens))  # what the widest request has room for
        for slot, tokens in enumerate(context.tokens):
            lag = tokens[int(self._cache.lengths[slot]) : -1]
            if len(lag) > few // 2:
                self._read(context, slot, lag, Phase.DRAFT)
        window = self._cache.window(0, context.batch)
        lengths = window.lengths.tolist()
        ends = [len(tokens) - rooted for tokens in context.tokens]
        return [
            tokens[length:end]
            for tokens, length, end in zip(context.tokens, lengths, ends, strict=True)
        ], window

    def keep(self, counts: Sequence[int]) -> None:
        """The rows of :meth:`missing` were computed in the last pass: they stay."""
        assert self._cache is not None
        self._cache.window(0, len(counts)).commit(counts)

    def move(self, source: int, target: int) -> None:
        """The request in slot ``source`` now lives in slot ``target``."""
        assert self._cache is not None
        self._cache.move(source, target)

    def _read(self, context: Context, slot: int, tokens: Sequence[int], phase: Phase) -> None:
        assert self._cache is not None
        if not tokens:
            return
        window = self._cache.window(slot, slot + 1)
        rows = draft_block(torch.tensor([tokens]), window.lengths, NOTHING, gated=False)
        context.verifier.run(
            phase, rows, window, context.ledger, adapter=self._adapter, logits="none"
        )
        window.commit(len(tokens))
