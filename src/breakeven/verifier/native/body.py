"""The body of a lean decoder as one native call."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from breakeven.verifier.architecture import Architecture
from breakeven.verifier.cache import KVCache, Past
from breakeven.verifier.interface import Output
from breakeven.verifier.lora import GROUPS, RowLoRA
from breakeven.verifier.native import library
from breakeven.verifier.native.library import Adapter, Layer, Model, Pass, Projections
from breakeven.verifier.native.panels import Shelf, panel_floats, projections
from breakeven.verifier.rotary import Rotary
from breakeven.verifier.rows import Rows


def obstacle(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the native path cannot run a decoder here, or None; builds the library if need be."""
    if device.type != "cpu" or dtype is not torch.float32:
        return f"it computes in fp32 on the CPU, not in {str(dtype)[6:]} on {device.type}"
    if architecture.head_dim % 8:
        return f"its heads have a multiple of 8 numbers, not {architecture.head_dim}"
    found = library.status()
    return None if found.active else found.reason


def shelf_for(architecture: Architecture, kind: int = library.FP32) -> Shelf:
    """Memory for the packed linears and the head of a decoder."""
    layer = sum(panel_floats(group_shape(architecture, group, kind)) for group in GROUPS)
    sizes = architecture.hidden_size, (architecture.vocab_size,)
    return Shelf(architecture.layers * layer + panel_floats(projections(*sizes, kind=kind)))


def group_shape(architecture: Architecture, group: str, kind: int = library.FP32) -> Projections:
    """The projections of one packed linear; gate and up are interleaved."""
    sizes = architecture.linear_sizes(group)
    return projections(*sizes, interleaved=group == "gate_up", kind=kind)


class NativeBody:
    """All layers and the final norm of a decoder whose linears are packed."""

    def __init__(self, architecture: Architecture, blocks: Sequence[Any], norm: Tensor) -> None:
        """``blocks`` are :class:`~breakeven.verifier.block.Block` with packed linears, the
        weights of all stored in one way.
        """
        kernels = library.kernels()
        assert kernels is not None
        self._kernels = kernels
        self._kept = (blocks, norm)
        self._parameters: WeakKeyDictionary[RowLoRA, _Parameters] = WeakKeyDictionary()
        self._layers = (Layer * len(blocks))(*map(_layer, blocks))
        a = architecture
        self._model = Model(
            layers=a.layers,
            hidden=a.hidden_size,
            intermediate=a.intermediate_size,
            heads=a.heads,
            kv_heads=a.kv_heads,
            head_dim=a.head_dim,
            layer=self._layers,
            norm=norm.data_ptr(),
            epsilon=a.norm_eps,
            kind=blocks[0].linears["qkv"].panels.shape.kind,
        )

    def takes(self, past: Past, adapter: RowLoRA | None) -> bool:
        """Whether a pass can run here: no gradients, an ordinary cache, fp32 throughout."""
        if torch.is_grad_enabled() or not isinstance(past, KVCache):
            return False
        adapted = adapter is None or _is_plain(adapter.mask_vector)
        return adapted and _is_plain(past.keys) and past.keys.stride(-2) == past.keys.shape[-1]

    def run(
        self,
        x: Tensor,
        rows: Rows,
        cache: Past,
        rotary: Rotary,
        adapter: RowLoRA | None,
        taps: Sequence[int],
        layers: Sequence[int],
    ) -> Output:
        """The pass over ``x`` ``[B, W, H]``, which becomes the hidden states in place.

        ``x`` are the inputs of ``layers[0]``.

        The rows' keys and values are written behind each request's length, as
        :meth:`KVCache.extend` does.
        """
        assert isinstance(cache, KVCache)
        assert int(cache.lengths.max()) + rows.width <= cache.capacity, "the cache is too small"
        assert x.is_contiguous()
        tapped = {layer: torch.empty_like(x) for layer in sorted(set(taps))}
        positions, lengths = rows.positions.contiguous(), cache.lengths.contiguous()
        sees = rows.sees.contiguous()
        past = None if rows.past is None else rows.past.contiguous()
        cosines, sines = rotary.tables(int(positions.max()) + 1)
        gate = None if rows.gate is None else rows.gate.contiguous()
        deltas = None if adapter is None or gate is None else self._deltas(adapter, gate)
        call = Pass(
            threads=torch.get_num_threads(),
            batch=rows.batch,
            width=rows.width,
            taps=len(tapped),
            x=x.data_ptr(),
            positions=positions.data_ptr(),
            lengths=lengths.data_ptr(),
            past=None if past is None else past.data_ptr(),
            sees=sees.data_ptr(),
            sees_step=rows.width**2 if sees.dim() == 3 and len(sees) > 1 else 0,
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
            keys=cache.keys.data_ptr(),
            values=cache.values.data_ptr(),
            layer_step=cache.keys.stride(0),
            batch_step=cache.keys.stride(1),
            head_step=cache.keys.stride(2),
            tap_layers=(c_int64 * len(tapped))(*tapped),
            tap_outputs=(c_void_p * len(tapped))(*(t.data_ptr() for t in tapped.values())),
            adapter=None if deltas is None else ctypes.pointer(deltas),
            order=(c_int64 * len(layers))(*layers),
            count=len(layers),
        )
        self._kernels.breakeven_body(self._model, call)
        return Output(x, taps=tapped)

    def _deltas(self, adapter: RowLoRA, gate: Tensor) -> Adapter | None:
        if not bool(gate.any()):
            return None
        parameters = self._parameters.get(adapter)
        if parameters is None:
            parameters = self._parameters[adapter] = _Parameters.of(adapter)
        return Adapter(
            rank=adapter.spec.rank,
            gate=gate.data_ptr(),
            down=_addresses(parameters.down),
            up=_addresses(parameters.up),
            scale=adapter.spec.alpha / adapter.spec.rank,
        )


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.device.type == "cpu"


def _layer(block: Any) -> Layer:
    norms: Mapping[str, Tensor] = block.norms
    linears = [block.linears[group] for group in GROUPS]
    address = {name: norms[name].data_ptr() if name in norms else None for name in ("q", "k")}
    return Layer(
        norm_input=norms["input"].data_ptr(),
        norm_post=norms["post"].data_ptr(),
        norm_q=address["q"],
        norm_k=address["k"],
        panels=(c_void_p * len(GROUPS))(*(linear.panels.data.data_ptr() for linear in linears)),
        bias=(c_void_p * len(GROUPS))(
            *(None if linear.bias is None else linear.bias.data_ptr() for linear in linears)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Parameters:
    """An adapter's parameters in the order of the library; None where a layer has none."""

    down: list[Tensor | None]  # [layers * 4]
    up: list[Tensor | None]  # [layers * 7]

    @classmethod
    def of(cls, adapter: RowLoRA) -> _Parameters:
        down: list[Tensor | None] = []
        up: list[Tensor | None] = []
        for layer in range(adapter.architecture.layers):
            for group, names in GROUPS.items():
                part = adapter.part(layer, group)
                down.append(None if part is None else part.down)
                up.extend([None] * len(names) if part is None else part.up)
        return cls(down, up)


def _addresses(tensors: Sequence[Tensor | None]) -> Any:
    """Where the tensors are now: read anew for each pass, since training may move them."""
    return (c_void_p * len(tensors))(*(None if t is None else t.data_ptr() for t in tensors))
