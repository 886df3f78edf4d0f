"""The lean decoder: one readable PyTorch path for Llama, Mistral, Qwen2 and Qwen3.

Its fp32 logits equal transformers' to 1e-4 (``tests/test_decoder.py``). One body serves plain
steps, prefill, draft and verify passes and the noised rows of training: what differs between
them is in :class:`~breakeven.verifier.rows.Rows` and in the cache.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from breakeven.verifier.architecture import Architecture
from breakeven.verifier.block import Block, BlockPass, grouped_mask, rms_norm
from breakeven.verifier.cache import Past
from breakeven.verifier.int8 import Int8, full_name
from breakeven.verifier.interface import Output, Part, Verifier
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.lora import GROUPS, RowLoRA
from breakeven.verifier.native import library
from breakeven.verifier.native.body import NativeBody, group_shape, obstacle, shelf_for
from breakeven.verifier.native.panels import projections
from breakeven.verifier.rotary import Rotary
from breakeven.verifier.rows import Rows


class LeanVerifier(Verifier):
    """The lean decoder behind the verifier's interface."""

    def __init__(
        self,
        architecture: Architecture,
        rotary: Rotary,
        tensors: Mapping[str, Tensor],
        name: str,
        *,
        native: bool = True,
        int8: bool = False,
    ) -> None:
        """``native`` False keeps to PyTorch even where the CPU kernels could run.

        ``int8`` rounds the weights of fp32 ``tensors``: :mod:`breakeven.verifier.int8`.
        """
        self.architecture, self.shape, self.name = architecture, architecture.shape, name
        self._norm = tensors["model.norm.weight"]
        self.dtype, self.device = self._norm.dtype, self._norm.device
        self._rotary = rotary.on(self.device)
        native = native and obstacle(architecture, self.dtype, self.device) is None
        self._build(tensors, native, int8)

    def _build(self, tensors: Mapping[str, Tensor], native: bool, int8: bool) -> None:
        """Make the linears, packing each before the next, so that no third copy ever exists."""
        a, kind = self.architecture, library.INT8 if int8 else library.FP32
        shelf = shelf_for(a, kind) if native else None

        def linear(weight: Tensor, bias: Tensor | None = None) -> FrozenLinear:
            return FrozenLinear(Int8.nearest(weight) if int8 else weight, bias)

        embedding = "model.embed_tokens.weight"
        self._head = linear(tensors[embedding if a.tied else "lm_head.weight"])
        self._head.pack(shelf=shelf, native=native)
        self._table = self._head
        if not a.tied:
            self._table = linear(tensors[embedding])
            if int8:
                self._table.pack(native=native)
        self.blocks = []
        for index in range(a.layers):
            block = Block.of(a, index, tensors, linear)
            for group, packed in block.linears.items():
                assert isinstance(packed, FrozenLinear)
                packed.pack(group_shape(a, group, kind), shelf, native=native)
            self.blocks.append(block)
        self._native = NativeBody(a, self.blocks, self._norm) if native else None
        if native:
            self.mode = "native"

    @classmethod
    def from_config(
        cls,
        config: Any,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        native: bool = True,
        int8: bool = False,
    ) -> LeanVerifier:
        """A random model of a transformers config, for tests and cost measurements."""
        architecture = Architecture.from_config(config)
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        for key, size in tensor_sizes(architecture).items():
            noise = torch.randn(size, generator=generator, dtype=torch.float64)
            scale = 1.0 if len(size) == 1 else size[-1] ** -0.5
            tensors[key] = (noise * scale * 0.5 + (1.0 if "norm" in key else 0.0)).to(device, dtype)
        rotary = Rotary.from_config(config, architecture, dtype)
        name = full_name(f"random-{architecture.family}", "int8" if int8 else None)
        return cls(architecture, rotary, tensors, name, native=native, int8=int8)

    def recast(self, dtype: torch.dtype) -> LeanVerifier:
        """A copy with weights of another type, on the PyTorch path (training's frozen passes)."""
        twin = copy.copy(self)
        twin.dtype, twin.mode, twin._native = dtype, "eager", None
        twin._norm, twin._rotary = self._norm.to(dtype), self._rotary.recast(dtype)
        twin._head = twin._table = self._head.recast(dtype)
        if not self.architecture.tied:
            twin._table = self._table.recast(dtype)
        twin.blocks = [block.recast(dtype) for block in self.blocks]
        return twin

    def rounded(self) -> LeanVerifier:
        """A copy with int8 weights, which reads a quarter of the bytes: a cheap draft of this one.

        Norms and embeddings are shared. Where the processor multiplies 8-bit numbers the kernels
        round the linears' inputs as well (:func:`library.draft_kind`). Off the native path, where
        nothing multiplies int8, the copy has the weights that the numbers stand for.
        """
        twin, a = copy.copy(self), self.architecture
        twin.name = full_name(self.name, "int8")
        native = self._native is not None
        kind = library.draft_kind() if native else library.INT8
        shelf = shelf_for(a, kind) if native else None
        head = projections(a.hidden_size, (a.vocab_size,), kind=kind)
        twin._head = self._head.rounded(head, shelf, native=native)

        def linear(group: str, own: FrozenLinear) -> FrozenLinear:
            return own.rounded(group_shape(a, group, kind), shelf, native=native)

        twin.blocks = [block.with_linears(linear) for block in self.blocks]
        twin._native = NativeBody(a, twin.blocks, self._norm) if native else None
        return twin

    @property
    def rotary(self) -> Rotary:
        """The position tables, for drafters whose layers share them."""
        return self._rotary

    @property
    def final_norm(self) -> Tensor:
        """``[H]`` weight of the norm before the head."""
        return self._norm

    @property
    def head_weight(self) -> Tensor:
        """``[V, H]`` rows of the head (the embedding table when they are tied)."""
        return self._head.weight

    def embed(self, token_ids: Tensor) -> Tensor:
        """``[..., W]`` ids to ``[..., W, H]``."""
        return self._table.rows(token_ids)

    def head(self, hidden: Tensor) -> Tensor:
        """``[..., H]`` to ``[..., V]`` logits."""
        logits: Tensor = self._head(hidden)
        return logits

    def choose(self, hidden: Tensor) -> Tensor:
        """The head's arg-max ``[...]``; natively, no logits are written."""
        if self._head.panels is None or torch.is_grad_enabled():
            return super().choose(hidden)
        return self._head.panels.choose(hidden, None)

    def weigh(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The same with margins."""
        if self._head.panels is None or torch.is_grad_enabled():
            return super().weigh(hidden)
        return self._head.panels.weigh(hidden, None)

    def body(
        self,
        rows: Rows,
        past: Past,
        adapter: RowLoRA | None = None,
        taps: Sequence[int] = (),
        part: Part | None = None,
    ) -> Output:
        """All blocks, or a part of them, and the final norm over ``[B, W]`` rows."""
        if adapter is not None and adapter.enter and rows.masked is not None:
            return self._late_masks(rows, past, adapter, taps)
        layers = range(len(self.blocks)) if part is None else part.layers
        if part is not None and part.inputs is not None:
            x = part.inputs.clone()  # the native path writes into it
        else:
            x = self.embed(rows.token_ids)
        if rows.masked is not None:
            assert adapter is not None, "mask rows need an adapter's mask vector"
            x = torch.where(rows.masked[..., None], adapter.mask_vector.to(x.dtype), x)
        if self._native is not None and self._native.takes(past, adapter):
            return self._native.run(x, rows, past, self._rotary, adapter, taps, layers)
        shared = self._shared(rows, past, adapter)
        tapped = {}
        for index in layers:
            x = self.blocks[index](x, shared)
            if index in taps:
                tapped[index] = x
        return Output(rms_norm(x, self._norm, self.architecture.norm_eps), taps=tapped)

    def _late_masks(self, rows: Rows, past: Past, adapter: RowLoRA, taps: Sequence[int]) -> Output:
        """Clean rows run through all layers, the masks behind them only from ``enter`` on."""
        assert rows.masked is not None
        front, enter = self._clean_rows(rows, past), adapter.enter
        states = [adapter.mask_vector.to(self.dtype).expand(rows.batch, rows.width - front, -1)]
        early: dict[int, Tensor] = {}
        if front:
            first = Part(tuple(range(enter)))
            wanted = {enter - 1, *(tap for tap in taps if tap < enter)}
            early = self.body(rows.head(front), past, taps=sorted(wanted), part=first).taps
            states.insert(0, early[enter - 1])
        rest = Part(tuple(range(enter, len(self.blocks))), torch.cat(states, dim=1))
        late = [tap for tap in taps if tap >= enter]
        out = self.body(replace(rows, masked=None), past, adapter, late, rest)
        return replace(out, taps={**{t: early[t] for t in taps if t < enter}, **out.taps})

    def _clean_rows(self, rows: Rows, past: Past) -> int:
        """How many rows stand before the masks that enter late."""
        return clean_rows(rows)

    def _shared(self, rows: Rows, past: Past, adapter: RowLoRA | None) -> BlockPass:
        cos, sin = self._rotary(rows.positions)
        gated = None
        if adapter is not None and rows.gate is not None and not bool(rows.gate.all()):
            gated = rows.gate.nonzero().squeeze(1)
        if rows.gate is None or not bool(rows.gate.any()):
            adapter = None
        span = past.span(rows)
        mask = grouped_mask(span.mask, self.shape.heads // self.shape.kv_heads)
        return BlockPass(cos, sin, past, span, mask, adapter, gated)


def clean_rows(rows: Rows) -> int:
    """How many rows stand before the masks; behind them there must be nothing but masks."""
    assert rows.masked is not None
    masked = rows.masked if rows.masked.dim() == 1 else rows.masked[0]
    front = int((~masked).sum())
    assert bool(masked[front:].all()), "late masks stand behind the clean rows"
    return front


def tensor_sizes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint must hold, by its Hugging Face name."""
    a = architecture
    sizes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (a.vocab_size, a.hidden_size),
        "model.norm.weight": (a.hidden_size,),
    }
    if not a.tied:
        sizes["lm_head.weight"] = (a.vocab_size, a.hidden_size)
    biased = {"qkv": a.qkv_bias, "o": a.o_bias, "gate_up": a.mlp_bias, "down": a.mlp_bias}
    for layer in range(a.layers):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            sizes[f"{prefix}{norm}.weight"] = (a.hidden_size,)
        if a.qk_norm:
            sizes[f"{prefix}self_attn.q_norm.weight"] = (a.head_dim,)
            sizes[f"{prefix}self_attn.k_norm.weight"] = (a.head_dim,)
        for group, names in GROUPS.items():
            inputs, outputs = a.linear_sizes(group)
            for name, size in zip(names, outputs, strict=True):
                sizes[f"{prefix}{name}.weight"] = (size, inputs)
                if biased[group]:
                    sizes[f"{prefix}{name}.bias"] = (size,)
    return sizes
