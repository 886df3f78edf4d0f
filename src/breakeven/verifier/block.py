"""One decoder layer: grouped-query attention and SwiGLU, in readable PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from breakeven.verifier.architecture import Architecture
from breakeven.verifier.cache import Past, Span
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.lora import GROUPS, RowLoRA

FARTHEST = 16384.0
"""The largest query, key or value of an adapter's row in fp16, which ends at 65504."""


@dataclass(frozen=True, slots=True)
class BlockPass:
    """What every block of one pass shares."""

    cos: Tensor  # [B, 1, W, d]
    sin: Tensor  # [B, 1, W, d]
    past: Past
    span: Span
    mask: Tensor | None  # what :func:`grouped_attention` wants
    adapter: RowLoRA | None
    gated: Tensor | None  # indices of the rows with the adapter on; None: all of them
    gate: Tensor | None = None  # [W, 1] bool: the same as a mask, where indices must not be asked


class Block(nn.Module):
    """One decoder layer: attention and SwiGLU, each behind an RMS norm, with packed linears.

    ``norms`` holds ``input``, ``post`` and, for Qwen3, ``q`` and ``k``. ``linears`` maps the
    groups of :data:`~breakeven.verifier.lora.GROUPS` to any module of the right sizes, so that a
    trained layer (FastMTP) can use this class as well.
    """

    def __init__(
        self,
        architecture: Architecture,
        index: int,
        norms: Mapping[str, Tensor],
        linears: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        self.architecture, self.index = architecture, index
        self.norms = nn.ParameterDict(dict(norms))
        self.linears = nn.ModuleDict(dict(linears))

    def forward(self, x: Tensor, shared: BlockPass) -> Tensor:
        """``[B, W, H]`` to ``[B, W, H]``."""
        eps = self.architecture.norm_eps
        x = x + self._attention(rms_norm(x, self.norms["input"], eps), shared)
        gate, up = self._linear("gate_up", rms_norm(x, self.norms["post"], eps), shared).chunk(
            2, dim=-1
        )
        return x + self._linear("down", F.silu(gate) * up, shared)

    @classmethod
    def of(
        cls,
        architecture: Architecture,
        index: int,
        tensors: Mapping[str, Tensor],
        linear: Callable[[Tensor, Tensor | None], FrozenLinear],
    ) -> Block:
        """Layer ``index`` of a checkpoint; ``linear`` makes a packed linear of weight and bias."""
        prefix = f"model.layers.{index}."
        norms = {
            "input": tensors[prefix + "input_layernorm.weight"],
            "post": tensors[prefix + "post_attention_layernorm.weight"],
        }
        if architecture.qk_norm:
            norms["q"] = tensors[prefix + "self_attn.q_norm.weight"]
            norms["k"] = tensors[prefix + "self_attn.k_norm.weight"]
        linears = {}
        for group, names in GROUPS.items():
            weights = [tensors[f"{prefix}{name}.weight"] for name in names]
            biases = [tensors[k] for name in names if (k := f"{prefix}{name}.bias") in tensors]
            linears[group] = linear(torch.cat(weights), torch.cat(biases) if biases else None)
        return cls(architecture, index, norms, linears).requires_grad_(False)

    def recast(self, dtype: torch.dtype) -> Block:
        """A frozen copy with weights of another type."""
        norms = {name: norm.detach().to(dtype) for name, norm in self.norms.items()}
        linears = {group: linear.recast(dtype) for group, linear in self._frozen().items()}
        return Block(self.architecture, self.index, norms, linears).requires_grad_(False)

    def with_linears(self, linear: Callable[[str, FrozenLinear], FrozenLinear]) -> Block:
        """A frozen copy with the same norms and other linears, made by ``linear`` of each group."""
        norms = dict(self.norms.items())
        linears = {group: linear(group, own) for group, own in self._frozen().items()}
        return Block(self.architecture, self.index, norms, linears).requires_grad_(False)

    def _frozen(self) -> dict[str, FrozenLinear]:
        return {group: cast(FrozenLinear, linear) for group, linear in self.linears.items()}

    def _attention(self, x: Tensor, shared: BlockPass) -> Tensor:
        a = self.architecture
        batch, width, _ = x.shape
        packed = self._linear("qkv", x, shared)
        if shared.adapter is not None and packed.dtype is torch.float16:
            packed = _bounded(packed, shared)
        packed = packed.view(batch, width, -1, a.head_dim)
        q, k, v = packed.split((a.heads, a.kv_heads, a.kv_heads), dim=2)
        if a.qk_norm:
            q = rms_norm(q, self.norms["q"], a.norm_eps)
            k = rms_norm(k, self.norms["k"], a.norm_eps)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, heads, W, d]
        q, k = rotate(q, shared), rotate(k, shared)
        k, v = shared.past.extend(self.index, k, v, shared.span)  # [B, H_kv, S, d]
        return self._linear("o", grouped_attention(q, k, v, shared.mask), shared)

    def _linear(self, group: str, x: Tensor, shared: BlockPass) -> Tensor:
        y: Tensor = self.linears[group](x)
        if shared.adapter is None:
            return y
        if shared.gated is None:
            delta = shared.adapter.delta(self.index, group, x)
            if delta is None:
                return y
            return y + delta if shared.gate is None else torch.where(shared.gate, y + delta, y)
        delta = shared.adapter.delta(self.index, group, x[:, shared.gated])
        return y if delta is None else y.index_add(1, shared.gated, delta)


def _bounded(packed: Tensor, shared: BlockPass) -> Tensor:
    """Queries, keys and values with those of the adapter's rows :func:`within` range."""
    kept = within(packed)
    if shared.gate is not None:
        return torch.where(shared.gate, kept, packed)
    if shared.gated is None:
        return kept
    return packed.index_copy(1, shared.gated, kept[:, shared.gated])


def within(x: Tensor) -> Tensor:
    """``x`` with every number finite and small enough to be multiplied in fp16.

    What an adapter's rows compute may leave fp16's narrow range. Other rows do not see them, which
    in attention is a weight of 0, and 0 times infinity is not 0.

    >>> within(torch.tensor([2.0, torch.inf, torch.nan], dtype=torch.float16)).tolist()
    [2.0, 16384.0, -16384.0]
    """
    return x.fmax(x.new_tensor(-FARTHEST)).fmin(x.new_tensor(FARTHEST))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis."""
    return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), eps)


def rotate(x: Tensor, shared: BlockPass) -> Tensor:
    """Rotary position embedding, half-split layout."""
    left, right = x.chunk(2, dim=-1)
    return x * shared.cos + torch.cat((-right, left), dim=-1) * shared.sin


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention: ``q [B, heads, W, d]`` over ``k, v [B, H_kv, S, d]``.

    The heads of a group are laid beside each other as rows, so keys are read once per group;
    ``mask`` is :func:`grouped_mask`'s, made once for all layers. Returns ``[B, W, heads * d]``.
    """
    batch, heads, width, dim = q.shape
    groups = heads // k.shape[1]
    rows = q.reshape(batch, k.shape[1], groups * width, dim)
    out = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask)
    return out.reshape(batch, heads, width, dim).transpose(1, 2).reshape(batch, width, -1)


def grouped_mask(visible: Tensor | None, groups: int) -> Tensor | None:
    """``[B, W, S]`` visibility as ``[B, 1, groups * W, S]``, one copy for each head of a group."""
    return None if visible is None else visible[:, None].repeat(1, 1, groups, 1)
