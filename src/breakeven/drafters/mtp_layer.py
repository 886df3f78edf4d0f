"""The one layer of FastMTP, shared by all recursive steps (ALGORITHMS 2.1).

    x      = W_in [norm_h(h); norm_e(e)]      W_in: 2H -> H, hidden half first
    h_next = norm(block(x))                   one decoder block of the base architecture
    logits = head(h_next)                     the verifier's head, frozen

``h`` is the verifier's hidden state *after* its final norm (or ``h_next`` of the step before) and
``e`` the embedding of the token one to the right of it. Row i, with ``h_i`` and the embedding of
token i + 1, stands at position i and predicts token i + 2; positions start at 0 in training and
in decoding, and nothing is zeroed at position 0.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from breakeven.verifier.architecture import Architecture
from breakeven.verifier.block import Block, BlockPass, grouped_mask, rms_norm
from breakeven.verifier.cache import Past
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.int8 import Int8
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.lora import GROUPS
from breakeven.verifier.native import library
from breakeven.verifier.native.body import NativeBody, group_shape, obstacle
from breakeven.verifier.native.library import Projections
from breakeven.verifier.rotary import Rotary
from breakeven.verifier.rows import Rows


class MTPLayer(nn.Module):
    """``forward(h, e, rows, past) -> h_next``; 17,831,168 parameters for Qwen3-0.6B.

    All weights are fresh: ones for the norms, PyTorch's defaults for the linears.
    """

    def __init__(self, architecture: Architecture, rotary: Rotary) -> None:
        super().__init__()
        self.architecture, self._rotary = architecture, rotary
        size = architecture.hidden_size
        self.norm_hidden = nn.Parameter(torch.ones(size))
        self.norm_embedding = nn.Parameter(torch.ones(size))
        self.join = nn.Linear(2 * size, size, bias=False)
        self.block = Block(architecture, 0, _norms(architecture), _linears(architecture))
        self.norm = nn.Parameter(torch.ones(size))
        self._native: NativeBody | None = None

    @classmethod
    def of(cls, verifier: LeanVerifier) -> MTPLayer:
        """A fresh layer of the verifier's architecture, type and device."""
        layer = cls(verifier.architecture, verifier.rotary)
        return layer.to(verifier.device, verifier.dtype)

    def joined(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        """The two normalised halves side by side: ``[B, W, 2H]``."""
        eps = self.architecture.norm_eps
        halves = (
            rms_norm(hidden, self.norm_hidden, eps),
            rms_norm(embedded, self.norm_embedding, eps),
        )
        return torch.cat(halves, dim=-1)

    def forward(self, hidden: Tensor, embedded: Tensor, rows: Rows, past: Past) -> Tensor:
        """``hidden`` and ``embedded`` ``[B, W, H]`` to ``h_next`` ``[B, W, H]``."""
        x = self.join(self.joined(hidden, embedded))
        if self._native is not None and self._native.takes(past, None):
            return self._native.run(x, rows, past, self._rotary, None, (), (0,)).hidden
        cos, sin = self._rotary(rows.positions)
        span, a = past.span(rows), self.architecture
        mask = grouped_mask(span.mask, a.heads // a.kv_heads)
        shared = BlockPass(cos, sin, past, span, mask, adapter=None, gated=None)
        return rms_norm(self.block(x, shared), self.norm, self.architecture.norm_eps)

    def freeze(self, *, int8: bool = False) -> MTPLayer:
        """The same layer for decoding only: constant weights, laid out for narrow passes.

        ``int8`` rounds them where the CPU kernels run: fewer bytes to read, nearly the same drafts.
        """
        self.requires_grad_(False)
        one = replace(self.architecture, layers=1)
        native = obstacle(one, self.norm.dtype, self.norm.device) is None
        kind = library.draft_kind() if int8 and native else library.FP32
        self.join = _frozen(self.join, None, native, kind)  # type: ignore[assignment]
        for group, linear in self.block.linears.items():
            shape = group_shape(one, group, kind)
            self.block.linears[group] = _frozen(linear, shape, native, kind)
        if native:  # the body of a decoder of one layer
            self._native = NativeBody(one, [self.block], self.norm)
        return self


def _norms(architecture: Architecture) -> dict[str, nn.Parameter]:
    sizes = {"input": architecture.hidden_size, "post": architecture.hidden_size}
    if architecture.qk_norm:
        sizes |= {"q": architecture.head_dim, "k": architecture.head_dim}
    return {name: nn.Parameter(torch.ones(size)) for name, size in sizes.items()}


def _linears(a: Architecture) -> dict[str, nn.Linear]:
    biased = {"qkv": a.qkv_bias, "o": a.o_bias, "gate_up": a.mlp_bias, "down": a.mlp_bias}
    linears = {}
    for group in GROUPS:
        inputs, outputs = a.linear_sizes(group)
        linears[group] = nn.Linear(inputs, sum(outputs), bias=biased[group])
    return linears


def _frozen(linear: nn.Module, shape: Projections | None, native: bool, kind: int) -> FrozenLinear:
    if isinstance(linear, FrozenLinear):
        return linear
    assert isinstance(linear, nn.Linear)
    bias = None if linear.bias is None else linear.bias.detach()
    weight = linear.weight.detach()
    frozen = FrozenLinear(weight if kind == library.FP32 else Int8.nearest(weight), bias)
    frozen.pack(shape, native=native, drafts=True)
    return frozen
