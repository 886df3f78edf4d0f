"""A frozen linear layer that keeps, on CPU, a copy laid out for narrow inputs.

oneDNN's packed layout makes a pass of 2–8 rows cost nearly what one row costs, which is what
verification lives on. Gradients flow through the plain weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: oneDNN's kernels for 1–4 rows are slower than the one for 5, so fewer rows are padded to it.
NARROWEST = 5


class FrozenLinear(nn.Module):
    """``y = x Wᵀ + b`` with constant weights ``[out, in]``."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.weight: Tensor
        self.bias: Tensor | None
        self._packed: Tensor | None = None

    def pack(self) -> None:
        """Lay the weights out for narrow CPU passes, where PyTorch offers it (fp32 only)."""
        fits = self.weight.device.type == "cpu" and self.weight.dtype is torch.float32
        if fits and torch.backends.mkldnn.is_available():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, 4)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in]`` to ``[..., out]``."""
        if self._packed is None or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        flat = x.reshape(-1, x.shape[-1])
        count = len(flat)
        if count < NARROWEST:
            flat = F.pad(flat, (0, 0, 0, NARROWEST - count))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            flat, self._packed, self.bias, "none", [], ""
        )
        return y[:count].view(*x.shape[:-1], -1)
