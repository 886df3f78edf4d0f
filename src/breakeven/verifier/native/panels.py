"""Frozen weights laid out for narrow passes, kept instead of the plain copy.

A panel is 16 outputs of a linear, ``[inputs, 16]``, in one piece of memory. The bytes are those
of the plain weights, rounded up to whole panels per projection. Of int8 weights a panel holds
groups ``[64, 16]``, each behind its 16 scales; those for int8 activations (W8A8) lie
``[16, 16, 4]``, four inputs of an output beside each other.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from breakeven.verifier.int8 import GROUP, Int8
from breakeven.verifier.native.library import FP32, INT8, W8A8, Projections

WIDTH = 16  # outputs in a panel
LINE = 16  # floats in a cache line
SHARE = 16  # inputs whose int8 activations share a scale (``w8a8.hpp``)
HUGE = 2 << 20  # bytes of a huge page


class Shelf:
    """One stretch of memory in huge pages, where the system grants them, for many linears."""

    def __init__(self, floats: int) -> None:
        """Room for ``floats`` fp32 numbers; each :meth:`take` may round up to a cache line."""
        nbytes = floats * 4 + HUGE
        if nbytes < 2 * HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
            self._free = torch.empty(floats)
            return
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        everything = torch.frombuffer(memory, dtype=torch.float32)
        start = -everything.data_ptr() % HUGE // 4
        self._free = everything[start : start + floats]

    def take(self, floats: int) -> Tensor:
        """The next ``floats`` numbers, uninitialised."""
        taken, self._free = self._free[:floats], self._free[-(-floats // LINE) * LINE :]
        assert taken.numel() == floats, "the shelf is too small"
        return taken


def projections(
    inputs: int, outputs: Sequence[int], interleaved: bool = False, kind: int = FP32
) -> Projections:
    """The shape of a linear that packs up to three projections of the same input.

    ``kind`` says how its weights are stored.
    """
    return Projections(len(outputs), interleaved, kind, inputs, (ctypes.c_int64 * 3)(*outputs))


def panel_floats(shape: Projections) -> int:
    """Memory of the panels of a linear, counted in fp32 numbers.

    >>> panel_floats(projections(10, (16, 17)))
    480
    >>> panel_floats(projections(10, (16, 17), kind=INT8))
    192
    """
    panels = sum(-(-int(shape.outputs[i]) // WIDTH) for i in range(shape.count))
    inputs = int(shape.inputs)
    if shape.kind == FP32:
        return panels * inputs * WIDTH
    together = SHARE if shape.kind == W8A8 else 4  # inputs stored together
    return panels * (-(-inputs // GROUP) * WIDTH + -(-inputs // together) * together * WIDTH // 4)


class Panels:
    """The packed weights of one linear."""

    def __init__(
        self,
        kernels: ctypes.CDLL,
        weight: Tensor | Int8,
        shape: Projections,
        shelf: Shelf | None = None,
    ) -> None:
        """Pack ``weight`` ``[outputs, inputs]``, which may be dropped afterwards."""
        self._kernels, self.shape = kernels, shape
        self.outputs = sum(shape.outputs[: shape.count])
        floats = panel_floats(shape)
        self.data = (shelf or Shelf(floats)).take(floats)
        if isinstance(weight, Int8):
            assert shape.kind in (INT8, W8A8)
            q, scales = weight.q.contiguous(), weight.scales.contiguous()
            assert tuple(q.shape) == (self.outputs, shape.inputs)
            kernels.breakeven_pack_int8(
                shape, q.data_ptr(), scales.data_ptr(), self.data.data_ptr()
            )
            return
        assert shape.kind == FP32
        assert tuple(weight.shape) == (self.outputs, shape.inputs)
        weight = weight.contiguous()
        kernels.breakeven_pack(shape, weight.data_ptr(), self.data.data_ptr())

    def plain(self) -> Tensor:
        """The plain weights ``[outputs, inputs]``: the very numbers that were packed, of int8 the
        products ``q * scale``.
        """
        weight = torch.empty(self.outputs, self.shape.inputs)
        self._kernels.breakeven_unpack(self.shape, self.data.data_ptr(), weight.data_ptr())
        return weight

    def rows(self, ids: Tensor) -> Tensor:
        """Rows ``ids`` ``[...]`` of the plain weights of a single projection: ``[..., inputs]``."""
        ids = ids.contiguous()
        found = torch.empty(*ids.shape, self.shape.inputs)
        self._kernels.breakeven_rows(
            self.shape, self.data.data_ptr(), ids.numel(), ids.data_ptr(), found.data_ptr()
        )
        return found

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        y = torch.empty(*x.shape[:-1], self.outputs)
        self._multiply(x, bias, y=y)
        return y

    def choose(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """``[..., inputs]`` to the index ``[...]`` of the largest output, the lowest of equals."""
        choices = torch.empty(x.shape[:-1], dtype=torch.long)
        self._multiply(x, bias, choices=choices)
        return choices

    def weigh(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same, and by how much that output is above the second largest."""
        choices, margins = torch.empty(x.shape[:-1], dtype=torch.long), torch.empty(x.shape[:-1])
        self._multiply(x, bias, choices=choices, margins=margins)
        return choices, margins

    def _multiply(
        self,
        x: Tensor,
        bias: Tensor | None,
        *,
        y: Tensor | None = None,
        choices: Tensor | None = None,
        margins: Tensor | None = None,
    ) -> None:
        x = x.contiguous()
        self._kernels.breakeven_linear(
            torch.get_num_threads(),
            self.shape,
            self.data.data_ptr(),
            None if bias is None else bias.data_ptr(),
            x.numel() // x.shape[-1],
            x.data_ptr(),
            *(None if t is None else t.data_ptr() for t in (y, choices, margins)),
        )
