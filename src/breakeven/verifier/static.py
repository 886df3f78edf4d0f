"""A pass of fixed shape over tensors at fixed places: what a CUDA graph can hold.

Nothing in it depends on numbers that the host knows: lengths, positions, visibility, gate and
masks are tensors, rows are written into the cache by index, and attention reads a fixed extent of
the cache behind a mask made from the lengths. The same code runs on the CPU, where the tests hold
it equal to the ordinary pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.verifier.cache import KVCache, Span, visibility
from breakeven.verifier.decoder import clean_rows
from breakeven.verifier.interface import LogitRows, Order
from breakeven.verifier.rows import Rows
from breakeven.verifier.transfer import Inlet

SHORTEST = 512
"""The smallest extent of a cache, in slots; the next are its doubles."""


def extent_for(slots: int) -> int:
    """The extent that holds so many slots.

    >>> extent_for(17), extent_for(513)
    (512, 1024)
    """
    extent = SHORTEST
    while extent < slots:
        extent *= 2
    return extent


@dataclass(frozen=True, slots=True)
class Key:
    """What a graph is made for. Everything else about a pass is in its inputs."""

    keys: int  # where the cache's keys and values are
    values: int
    strides: tuple[int, ...]
    batch: int
    width: int
    extent: int  # slots of the cache that attention reads
    adapter: int | None  # the adapter that acts or gives the mask vector
    gated: bool  # whether the adapter acts
    front: int | None  # rows before the masks; None: no row is a mask
    taps: tuple[int, ...]
    layers: tuple[int, ...] | None
    inputs: bool  # whether the pass starts from states instead of tokens
    logits: str

    @classmethod
    def of(cls, order: Order) -> Key:
        """The key of a pass."""
        rows, cache, part = order.rows, order.cache, order.part
        adapter = order.adapter
        needed = int(cache.lengths.max()) + rows.width
        assert needed <= cache.capacity, f"cache of {cache.capacity} slots cannot take {needed}"
        assert isinstance(order.logits, str)
        late = adapter is not None and adapter.enter and rows.masked is not None
        return cls(
            cache.keys.data_ptr(),
            cache.values.data_ptr(),
            cache.keys.stride(),
            rows.batch,
            rows.width,
            min(extent_for(needed), cache.capacity),
            None if adapter is None else id(adapter),
            adapter is not None and rows.gate is not None and bool(rows.gate.any()),
            None if rows.masked is None else clean_rows(rows) if late else 0,
            order.taps,
            None if part is None else part.layers,
            part is not None and part.inputs is not None,
            order.logits,
        )


def fits(order: Order) -> bool:
    """Whether a pass can be a static one: none that sees part of the past, or one row's logits."""
    logits: LogitRows = order.logits
    return isinstance(logits, str) and order.rows.past is None


class Inlets:
    """The inputs of one static pass, at fixed places."""

    def __init__(self, key: Key, order: Order, device: torch.device) -> None:
        batch, width = key.batch, key.width

        def inlet(*shape: int, dtype: torch.dtype = torch.long) -> Inlet:
            return Inlet(shape, dtype, device)

        self.token_ids, self.positions = inlet(batch, width), inlet(batch, width)
        self.sees = inlet(batch, width, width, dtype=torch.bool)
        self.lengths = inlet(batch)
        self.gate = inlet(width, dtype=torch.bool) if key.gated else None
        self.masked = None if key.front is None else inlet(batch, width, dtype=torch.bool)
        self.states: Inlet | None = None
        if order.part is not None and order.part.inputs is not None:
            states = order.part.inputs
            self.states = Inlet(tuple(states.shape), states.dtype, device)

    def put(self, order: Order) -> None:
        """Fill in a pass."""
        rows = order.rows
        self.token_ids.put(rows.token_ids)
        self.positions.put(rows.positions)
        self.sees.put(rows.sees)
        self.lengths.put(order.cache.lengths)
        if self.gate is not None:
            assert rows.gate is not None
            self.gate.put(rows.gate)
        if self.masked is not None:
            assert rows.masked is not None
            self.masked.put(rows.masked)
        if self.states is not None:
            assert order.part is not None
            assert order.part.inputs is not None
            self.states.put(order.part.inputs)

    def rows(self) -> Rows:
        """The rows, on the device."""
        return Rows(
            self.token_ids.tensor,
            self.positions.tensor,
            self.sees.tensor,
            gate=None if self.gate is None else self.gate.tensor,
            masked=None if self.masked is None else self.masked.tensor,
        )


class StaticPast:
    """A cache whose lengths are a tensor on the device; see :class:`~.cache.Past`."""

    def __init__(self, cache: KVCache, lengths: Tensor, extent: int, front: int) -> None:
        """``front``: the rows before masks that enter late."""
        self.front = front
        self._keys = cache.keys[:, :, :, :extent]
        self._values = cache.values[:, :, :, :extent]
        self._lengths = lengths

    def span(self, rows: Rows) -> Span:
        """Plan a pass: row i of request b is written to slot ``lengths[b] + i``."""
        behind = torch.arange(rows.width, device=self._lengths.device)
        slots = self._lengths[:, None] + behind
        extent = self._keys.shape[3]
        return Span(slots, extent, visibility(rows, self._lengths, slots, extent), None)

    def extend(self, layer: int, keys: Tensor, values: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Write the rows as scratch; return the whole extent of keys and values."""
        store_k, store_v = self._keys[layer], self._values[layer]
        index = span.slots[:, None, :, None].expand_as(keys)  # [B, H_kv, W, d]
        store_k.scatter_(2, index, keys)
        store_v.scatter_(2, index, values)
        return store_k, store_v
