"""What a verifier is: the frozen target model, the only authority over the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from breakeven.core import Pass, Phase
from breakeven.cost.ledger import Ledger
from breakeven.counting import counted
from breakeven.verifier.cache import KVCache, Past
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows
from breakeven.verifier.transfer import timed

LogitRows = Literal["all", "none", "choices", "margins"] | Tensor


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
    margins: Tensor | None = None  # [B, W]: by how much that logit is above the second largest


@dataclass(frozen=True, slots=True)
class Part:
    """A pass through some of the blocks: ``layers``, ascending, on embeddings or ``inputs``.

    ``inputs`` ``[B, W, H]`` are outputs of the block before ``layers[0]`` for the same rows. The
    blocks left out write no keys and values.
    """

    layers: tuple[int, ...]
    inputs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """All that one inference pass is made of; see :meth:`Verifier.run`."""

    phase: Phase
    rows: Rows
    cache: KVCache
    adapter: RowLoRA | None
    taps: tuple[int, ...]
    logits: LogitRows
    part: Part | None


class Launch(NamedTuple):
    """A pass that only has to be started; on a GPU it may go on after ``start`` returned."""

    mode: str
    start: Callable[[], Output]


class Verifier(ABC):
    """A causal language model behind one interface: the lean decoder or the fallback.

    A subclass gives :meth:`body`, :meth:`head` and :meth:`embed`. Weights never change and never
    require gradients.
    """

    name: str
    shape: ModelShape
    mode: str = "eager"
    resident: bool = False
    """Whether rounds keep token ids on the device (:mod:`breakeven.decode.resident`)."""
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

    def weigh(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The ids of :meth:`choose`, and by how much each one's logit is above the next.

        In a vocabulary of one token there is no next: the margin is 0.
        """
        logits = self.head(hidden)
        best = logits.topk(min(2, logits.shape[-1]), dim=-1).values
        return logits.argmax(dim=-1), best[..., 0] - best[..., -1]

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

    def prepare(self, order: Order) -> Launch:
        """A pass, ready to be launched, and the execution mode it will run in."""

        def launch() -> Output:
            rows = order.rows.to(self.device)
            out = self.body(rows, order.cache, order.adapter, order.taps, order.part)
            return self.answered(out, order.logits)

        return Launch(self.mode, launch)

    def answered(self, out: Output, logits: LogitRows) -> Output:
        """A body's output with what is wanted of the head."""
        if isinstance(logits, Tensor):
            picked = out.hidden[torch.arange(len(logits)), logits][:, None]
            return Output(out.hidden, self.head(picked), out.taps)
        if logits == "all":
            return Output(out.hidden, self.head(out.hidden), out.taps)
        if logits == "choices":
            return Output(out.hidden, None, out.taps, self.choose(out.hidden))
        if logits == "margins":
            return Output(out.hidden, None, out.taps, *self.weigh(out.hidden))
        return out

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
        wait: bool = True,
    ) -> Output:
        """One inference pass, entered in the ledger. Rows stay scratch until ``cache.commit``.

        ``logits`` says which rows get logits: ``"all"``, ``"none"``, or a ``[B]`` index of one
        row per request. ``"choices"`` gives every row's arg-max instead, which need not write
        ``[B, W, V]`` numbers; ``"margins"`` also says by how much it won. Without ``wait`` a GPU
        may still be at work when this returns, and the caller has ``ledger.settle()`` to call once
        it has waited.
        """
        mode, launch = self.prepare(Order(phase, rows, cache, adapter, tuple(taps), logits, part))
        entry = Pass(
            phase,
            rows.width,
            rows.batch,
            int(cache.lengths.max()),
            0.0,
            mode,
            "verifier" if part is None else f"{counted(len(part.layers), 'layer')}",
        )
        if self.device.type == "cuda" and not wait:
            outputs: list[Output] = []
            ledger.owe(entry, timed(self.device, lambda: outputs.append(launch())))
            return outputs[0]
        with ledger.buy(
            phase,
            rows=entry.rows,
            batch=entry.batch,
            context=entry.context,
            mode=entry.mode,
            model=entry.model,
        ):
            out = launch()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        return out
