"""Weights as whole numbers of 8 bits with fp32 scales: a verifier of its own, ``NAME+int8``.

Along its inputs an output's weights are cut into groups of 64. A group has one scale, its largest
magnitude ÷ 127, and every weight is the nearest multiple of it: ``w = q * scale``, wrong by half a
scale at most. All linear layers, the embedding table and the head are stored so; norms, biases,
activations, sums and adapters stay fp32.

The CPU kernels multiply the whole numbers and scale the sum of a group. PyTorch multiplies the
weights that stand for them, which is the reference the kernels are tested against. Where such
weights only draft, the kernels may round activations as well
(:func:`~breakeven.verifier.native.library.draft_kind`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from breakeven.errors import ModelError, nearest

SUFFIX = "+int8"
WEIGHTS = ("int8",)
"""What weights can be rounded to; without it they are what the checkpoint holds."""

GROUP = 64  # inputs that share a scale; kGroup in native/source/whole.hpp
LARGEST = 127
CHUNK = 128  # outputs rounded at a time: larger ones leave holes in memory that are not given back


@dataclass(frozen=True, slots=True)
class Int8:
    """The weights of one linear: ``q`` ``[outputs, inputs]`` int8, ``scales`` fp32 by group."""

    q: Tensor
    scales: Tensor  # [outputs, ceil(inputs / 64)]

    @classmethod
    def nearest(cls, weight: Tensor) -> Int8:
        """Round ``[outputs, inputs]`` weights; a group of zeros has the scale 0."""
        outputs, inputs = weight.shape
        q = torch.empty(outputs, inputs, dtype=torch.int8, device=weight.device)
        scales = torch.empty(outputs, -(-inputs // GROUP), device=weight.device)
        for first in range(0, outputs, CHUNK):
            rows = slice(first, first + CHUNK)
            q[rows], scales[rows] = _round(weight[rows].float())
        return cls(q, scales)

    def plain(self) -> Tensor:
        """The fp32 weights ``[outputs, inputs]`` that these numbers stand for."""
        inputs = self.q.shape[1]
        scales = self.scales.repeat_interleave(GROUP, dim=1)[:, :inputs]
        return self.q * scales


def _round(weight: Tensor) -> tuple[Tensor, Tensor]:
    outputs, inputs = weight.shape
    groups = F.pad(weight, (0, -inputs % GROUP)).view(outputs, -1, GROUP)
    scales = groups.abs().amax(dim=-1) / LARGEST
    steps = torch.where(scales > 0, scales, 1.0)[..., None]
    q = (groups / steps).round_().clamp_(-LARGEST, LARGEST).to(torch.int8)
    return q.view(outputs, -1)[:, :inputs].contiguous(), scales


def full_name(name: str, weights: str | None) -> str:
    """The verifier's name with its weights; raises :class:`ModelError` for an unknown kind.

    >>> full_name("smollm2-135m", "int8"), full_name("smollm2-135m", None)
    ('smollm2-135m+int8', 'smollm2-135m')
    """
    if weights is None:
        return name
    if weights not in WEIGHTS:
        raise ModelError(f"weights '{weights}': {nearest(weights, WEIGHTS)}")
    return name if is_int8(name) else name + SUFFIX


def base_name(name: str) -> str:
    """The model without what its weights are rounded to.

    >>> base_name("smollm2-135m+int8")
    'smollm2-135m'
    """
    return name.removesuffix(SUFFIX) if is_int8(name) else name


def is_int8(name: str) -> bool:
    """Whether a verifier's name asks for int8 weights; a folder may be called so itself."""
    return name.endswith(SUFFIX) and not Path(name).expanduser().exists()
