"""What a verifier is: the frozen target model, the only authority over the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.verifier.cache import KVCache, Past
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows

LogitRows = Literal["all", "none", "choices"] | Tensor


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a model that others need to know."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int


@dataclass(frozen=True, slots=True)
class Output:
    """What one pass returns; all tensors are ``[B, W, ...]``."""

    hidden: Tensor  # [B, W, H] after the final norm
    logits: Tensor | None = None  # [B, W, V], or [B, 1, V] when one row per request was asked for
    taps: dict[int, Tensor] = field(default_factory=dict)  # layer i -> [B, W, H], output of block i
    choices: Tensor | None = None  # [B, W] long: the arg-max of each row's logits


@dataclass(frozen=True, slots=True)
class Part:
    """A pass through some of the blocks: ``layers``, ascending, on embeddings or ``inputs``.

    ``inputs`` ``[B, W, H]`` are outputs of the block before ``layers[0]`` for the same rows. The
    blocks left out write no keys and values.
    """

    layers: tuple[int, ...]
    inputs: Tensor | None = None


class Verifier(ABC):
    """A causal language model behind one interface: the lean decoder or the fallback.

    A subclass gives :meth:`body`, :meth:`head` and :meth:`embed`. Weights never change and never
    require gradients.
    """

    name: str
    shape: ModelShape
    mode: str = "eager"
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def embed(self, token_ids: Tensor) -> Tensor:
        """``[..., W]`` ids to ``[..., W, H]`` input embeddings."""

    @abstractmethod
    def body(
        self,
        rows: Rows,
        past: Past,
        adapter: RowLoRA | None = None,
        taps: Sequence[int] = (),
        part: Part | None = None,
    ) -> Output:
        """All layers, or a part of them, and the final norm; differentiable in the adapter."""

    @abstractmethod
    def head(self, hidden: Tensor) -> Tensor:
        """``[..., H]`` states after the final norm to ``[..., V]`` logits."""

    def choose(self, hidden: Tensor) -> Tensor:
        """``[..., H]`` to the ids ``[...]`` of the largest logits, the lowest of equals."""
        return self.head(hidden).argmax(dim=-1)

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache for ``batch`` requests of at most ``capacity`` rows each."""
        s = self.shape
        return KVCache.allocate(
            layers=s.layers,
            batch=batch,
            kv_heads=s.kv_heads,
            capacity=capacity,
            head_dim=s.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    @torch.inference_mode()
    def run(
        self,
        phase: Phase,
        rows: Rows,
        cache: KVCache,
        ledger: Ledger,
        *,
        adapter: RowLoRA | None = None,
        taps: Sequence[int] = (),
        logits: LogitRows = "all",
        part: Part | None = None,
    ) -> Output:
        """One inference pass, entered in the ledger. Rows stay scratch until ``cache.commit``.

        ``logits`` says which rows get logits: ``"all"``, ``"none"``, or a ``[B]`` index of one
        row per request. ``"choices"`` gives every row's arg-max instead, which need not write
        ``[B, W, V]`` numbers.
        """
        context = int(cache.lengths.max())
        with ledger.buy(
            phase,
            rows=rows.width,
            batch=rows.batch,
            context=context,
            mode=self.mode,
            model="verifier" if part is None else f"{len(part.layers)} layers",
        ):
            out = self.body(rows.to(self.device), cache, adapter, taps, part)
            if isinstance(logits, Tensor):
                picked = out.hidden[torch.arange(rows.batch), logits][:, None]
                out = Output(out.hidden, self.head(picked), out.taps)
            elif logits == "all":
                out = Output(out.hidden, self.head(out.hidden), out.taps)
            elif logits == "choices":
                out = Output(out.hidden, None, out.taps, self.choose(out.hidden))
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        return out
