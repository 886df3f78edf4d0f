"""A frozen linear layer that keeps, on CPU, its weights laid out for narrow inputs.

Packed weights make a pass of a few rows cost nearly what one row costs, which is what
verification lives on. The panels of the native path replace the plain
weights; where it is not available, oneDNN's packed layout is kept beside them. Gradients flow
through the plain weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from breakeven.verifier.int8 import Int8
from breakeven.verifier.native import library
from breakeven.verifier.native.library import Projections
from breakeven.verifier.native.panels import Panels, Shelf, projections

#: oneDNN's kernels for 1–4 rows are slower than the one for 5, so fewer rows are padded to it.
NARROWEST = 5

KINDS = {torch.float32: library.FP32, torch.int8: library.INT8}


class FrozenLinear(nn.Module):
    """``y = x Wᵀ + b`` with constant weights ``[out, in]``, or those that int8 numbers stand for.

    Its state dict is that of an ``nn.Linear``; loading one leaves the constants as they are.
    """

    def __init__(self, weight: Tensor | Int8, bias: Tensor | None = None) -> None:
        super().__init__()
        self.bias = bias
        self.panels: Panels | None = None
        self._int8 = weight if isinstance(weight, Int8) else None
        self._plain: Tensor | None = None if isinstance(weight, Int8) else weight
        self._packed: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """The plain weights ``[out, in]``; unpacked anew when only panels are kept."""
        if self._plain is not None:
            return self._plain
        stored = self._int8 or self.panels
        assert stored is not None
        return stored.plain()

    def pack(
        self,
        shape: Projections | None = None,
        shelf: Shelf | None = None,
        *,
        native: bool = True,
        drafts: bool = False,
    ) -> None:
        """Lay the weights out for narrow CPU passes (fp32 and int8 only).

        ``shape`` names the projections packed in this linear (default: it is one; int8 weights
        that only draft are stored as :func:`library.draft_kind` says), ``shelf`` is the memory for
        the panels (default: its own); without ``native``, or where that path is not available,
        oneDNN's layout is used, and int8 weights become plain ones.
        """
        kernels = library.kernels() if native else None
        stored = self._int8 or self._plain
        assert stored is not None, "packed already"
        numbers = stored.q if isinstance(stored, Int8) else stored
        fits = numbers.device.type == "cpu" and numbers.dtype in (torch.float32, torch.int8)
        if fits and kernels is not None:
            (outputs, inputs), kind = numbers.shape, KINDS[numbers.dtype]
            if drafts and kind == library.INT8:
                kind = library.draft_kind()
            shape = shape or projections(inputs, (outputs,), kind=kind)
            self.panels = Panels(kernels, stored, shape, shelf)
            self._plain = self._int8 = None
            return
        self._plain, self._int8 = self.weight, None
        if fits and torch.backends.mkldnn.is_available():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._plain, 4)

    def recast(self, dtype: torch.dtype) -> FrozenLinear:
        """A plain copy with weights of another type."""
        bias = None if self.bias is None else self.bias.to(dtype)
        return FrozenLinear(self.weight.to(dtype), bias)

    def rounded(self, shape: Projections, shelf: Shelf | None, *, native: bool) -> FrozenLinear:
        """The same linear with int8 weights, packed for the native path, or those they stand for.

        ``shape`` and ``shelf`` are those of :meth:`pack`.
        """
        weight = self.weight
        stored = Int8.nearest(weight)
        made = FrozenLinear(stored if native else stored.plain().to(weight.dtype), self.bias)
        if weight.dtype is torch.float32:
            made.pack(shape, shelf, native=native)
        return made

    def rows(self, ids: Tensor) -> Tensor:
        """The weights ``[..., in]`` of the outputs ``ids`` ``[...]``: an embedding."""
        if self._plain is None and self.panels is not None:
            return self.panels.rows(ids)
        return F.embedding(ids, self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in]`` to ``[..., out]``."""
        if torch.is_grad_enabled():
            self._plain = self.weight  # training will need it again
            return F.linear(x, self._plain, self.bias)
        if self.panels is not None:
            return self.panels.linear(x, self.bias)
        if self._packed is None:
            return F.linear(x, self.weight, self.bias)
        flat = x.reshape(-1, x.shape[-1])
        count = len(flat)
        if count < NARROWEST:
            flat = F.pad(flat, (0, 0, 0, NARROWEST - count))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            flat, self._packed, self.bias, "none", [], ""
        )
        return y[:count].view(*x.shape[:-1], -1)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias

    def _load_from_state_dict(self, *_: Any) -> None:
        pass
