"""Key/value cache with an explicit length.

A pass writes its rows *behind* the length of each request, where they are scratch; they become
part of the cache only by :meth:`KVCache.commit`. Rejected drafts and mask rows are therefore
dropped by doing nothing: no later pass can see a row at or beyond the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from breakeven.verifier.rows import Rows
from breakeven.verifier.transfer import sent


@dataclass(frozen=True, slots=True)
class Span:
    """Where one pass writes and what it may see, in cache slots."""

    slots: Tensor  # [B, W] long: the slot of each row
    stop: int  # slots 0..stop-1 are read
    mask: Tensor | None  # [B, W, stop] bool; None: everything is visible
    uniform: int | None  # the first slot, when it is the same for all requests


class Past(Protocol):
    """What a decoder needs of a cache during one pass."""

    def span(self, rows: Rows) -> Span:
        """Plan the pass: slots, extent and visibility."""
        ...

    def extend(self, layer: int, keys: Tensor, values: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Add the rows' ``[B, H_kv, W, d]`` keys and values; return all that is visible."""
        ...


def visibility(rows: Rows, lengths: Tensor, slots: Tensor, stop: int) -> Tensor:
    """``[B, W, stop]`` bool: may row i of request b attend to slot s?

    ``lengths`` ``[B]`` are the cached lengths; ``slots`` ``[B, W]`` says where the pass's own
    rows stand.
    """
    batch, width = rows.batch, rows.width
    past = lengths[:, None].expand(batch, width) if rows.past is None else rows.past
    slot = torch.arange(stop, device=slots.device)
    visible = slot[None, None, :] < past[:, :, None]
    index = slots[:, None, :].expand(batch, width, width)
    return visible.scatter(2, index, rows.sees.expand(batch, width, width))


class KVCache:
    """Static cache of ``capacity`` slots for each of ``batch`` requests.

    ``keys`` and ``values`` are ``[L, B, H_kv, capacity, d]``; ``lengths`` ``[B]`` (long, CPU) is
    how many rows of each request count. Memory: :attr:`nbytes`.
    """

    def __init__(
        self, keys: Tensor, values: Tensor, lengths: Tensor, whole: KVCache | None = None
    ) -> None:
        """``whole`` is the cache that this one is a window of; it lives as long as its windows."""
        self.keys, self.values, self.lengths, self._whole = keys, values, lengths, whole

    @classmethod
    def allocate(
        cls,
        *,
        layers: int,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """An empty cache, which may be written in and outside of inference mode."""
        shape = (layers, batch, kv_heads, capacity, head_dim)
        with torch.inference_mode(False):  # another drafter may get this memory later
            keys = torch.zeros(shape, dtype=dtype, device=device)
            return cls(keys, torch.zeros_like(keys), torch.zeros(batch, dtype=torch.long))

    @property
    def batch(self) -> int:
        """Number of requests this cache (or window) holds."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Slots per request."""
        return self.keys.shape[3]

    @property
    def nbytes(self) -> int:
        """Bytes of storage."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def window(self, start: int, stop: int) -> KVCache:
        """Requests ``start..stop-1`` as a cache of their own, sharing storage and lengths."""
        return KVCache(
            self.keys[:, start:stop], self.values[:, start:stop], self.lengths[start:stop], self
        )

    def span(self, rows: Rows) -> Span:
        """Plan a pass: row i of request b is written to slot ``lengths[b] + i``."""
        longest, shortest = int(self.lengths.max()), int(self.lengths.min())
        stop = longest + rows.width
        assert stop <= self.capacity, f"cache of {self.capacity} slots cannot take {stop}"
        device = self.keys.device
        slots = sent(self.lengths[:, None] + torch.arange(rows.width), device)
        if rows.width == 1 and longest == shortest and rows.past is None:
            mask = None
        else:
            mask = visibility(rows, sent(self.lengths, device), slots, stop)
        uniform = longest if longest == shortest else None
        return Span(slots, stop, mask, uniform)

    def extend(self, layer: int, keys: Tensor, values: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Write the rows as scratch; return views ``[B, H_kv, stop, d]`` of keys and values."""
        store_k, store_v = self.keys[layer], self.values[layer]
        if span.uniform is not None:
            store_k[:, :, span.uniform : span.stop] = keys
            store_v[:, :, span.uniform : span.stop] = values
        else:
            request = torch.arange(self.batch, device=keys.device)[:, None]
            store_k[request, :, span.slots] = keys.transpose(1, 2)
            store_v[request, :, span.slots] = values.transpose(1, 2)
        return store_k[:, :, : span.stop], store_v[:, :, : span.stop]

    def commit(self, counts: int | Sequence[int]) -> None:
        """Keep the first ``counts[b]`` scratch rows of each request (one number: of all)."""
        self.lengths += torch.as_tensor(counts)
        assert int(self.lengths.max()) <= self.capacity

    def keep(self, paths: Sequence[Sequence[int]]) -> None:
        """Keep the scratch rows ``paths[b]`` (ascending) of each request, moved up to its length.

        The accepted path of a token tree; the other branches stay behind the length.
        """
        for request, path in enumerate(paths):
            if list(path) == list(range(len(path))):
                continue  # in place already
            start = int(self.lengths[request])
            stop = start + len(path)
            rows = torch.as_tensor(path, device=self.keys.device) + start
            for store in (self.keys[:, request], self.values[:, request]):
                store[:, :, start:stop] = store[:, :, rows]
        self.commit([len(path) for path in paths])

    def crop(self, request: int, length: int) -> None:
        """Forget all rows of one request from ``length`` on."""
        assert 0 <= length <= int(self.lengths[request])
        self.lengths[request] = length

    def move(self, source: int, target: int) -> None:
        """Put the rows of one request in another's place (a finished one's)."""
        length = int(self.lengths[source])
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]
        self.lengths[target] = length


class ReadOnlyPast:
    """A cache that is read and never written: new rows are concatenated behind it.

    Used in training, where the noised rows need gradients and must leave the clean stream's
    keys and values untouched.
    """

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def span(self, rows: Rows) -> Span:
        """Plan a pass whose rows stand behind the longest cached request."""
        longest, device = int(self.cache.lengths.max()), self.cache.keys.device
        slots = (longest + torch.arange(rows.width, device=device)).expand(rows.batch, -1)
        stop = longest + rows.width
        mask = visibility(rows, sent(self.cache.lengths, device), slots, stop)
        return Span(slots, stop, mask, longest)

    def extend(self, layer: int, keys: Tensor, values: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Cached rows followed by the new ones, ``[B, H_kv, stop, d]``; differentiable."""
        longest = span.stop - keys.shape[2]
        past_k = self.cache.keys[layer, :, :, :longest]
        past_v = self.cache.values[layer, :, :, :longest]
        return torch.cat((past_k, keys), dim=2), torch.cat((past_v, values), dim=2)


class NoPast:
    """Nothing is cached: rows see each other as ``rows.sees`` says, and nothing else."""

    def span(self, rows: Rows) -> Span:
        """Plan a pass over ``[B, W]`` rows."""
        batch, width = rows.batch, rows.width
        slots = torch.arange(width).expand(batch, width)
        return Span(slots, width, rows.sees.expand(batch, width, width), 0)

    def extend(self, layer: int, keys: Tensor, values: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """The new rows alone; differentiable."""
        return keys, values
