"""The clean stream: one pass of the frozen verifier over a text, remembered.

Drafters learn from what the verifier computed for the *true* text: its keys and values (block
drafters) or its hidden states (feature drafters). That pass needs no gradient and never changes,
so it is paid for once per text and kept, up to a budget of memory, and on disk up to another, for
later epochs and later runs. Texts run one at a time and are stored in a fixed type, so the same
text always gives the same numbers, whatever batch it is in and whether or not the process was
restarted in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.train.disk import DiskCache
from breakeven.verifier.cache import KVCache
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain


@dataclass(frozen=True, slots=True)
class Clean:
    """The verifier's view of one text of L tokens (prompt and continuation)."""

    token_ids: Tensor  # [L] long
    hidden: Tensor  # [L, H] after the final norm
    keys: Tensor | None = None  # [layers, H_kv, L, d]
    values: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = (t for t in (self.token_ids, self.hidden, self.keys, self.values) if t is not None)
        return sum(t.numel() * t.element_size() for t in held)


class CleanStream:
    """Runs the verifier over rows and remembers the results while ``budget_bytes`` lasts.

    ``store`` is the type kept (None: the verifier's own); ``with_keys`` also keeps keys and
    values, 23 KB per token in fp16 for SmolLM2-135M. With ``disk``, what was computed once is
    read from there; ``owner`` is the hash of the verifier's weights.
    """

    def __init__(
        self,
        verifier: Verifier,
        *,
        with_keys: bool,
        store: torch.dtype | None = None,
        budget_bytes: int = 1 << 31,
        disk: DiskCache | None = None,
        owner: str = "",
    ) -> None:
        self._verifier, self._with_keys = verifier, with_keys
        self._store = store or verifier.dtype
        self._left = budget_bytes
        self._kept: dict[str, Clean] = {}
        self._disk, self._owner = disk, owner

    def of(self, row: Row) -> Clean:
        """The clean stream of one row."""
        kept = self._kept.get(row.id)
        if kept is not None:
            return kept
        return self._kept_if_room(row, self._from_disk(row) or self._run(row)[0])

    def _from_disk(self, row: Row) -> Clean | None:
        found = self._disk.get(self._key(row)) if self._disk is not None else None
        if found is None:
            return None
        tensors = {name: t.to(self._verifier.device) for name, t in found.items()}
        return Clean(_text(row), **tensors)

    def _key(self, row: Row) -> str:
        """A text is known by its tokens: rows of other artifacts may have its id."""
        kept = "keys" if self._with_keys else "hidden"
        parts = (self._owner, self._verifier.dtype, self._store, kept, _text(row).tolist())
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def tapped(self, row: Row, layer: int) -> tuple[Clean, Tensor]:
        """The clean stream and, not remembered, the ``[L, H]`` output of one block."""
        clean, taps = self._run(row, layer)
        return self._kept_if_room(row, clean), taps[layer][0]

    def _kept_if_room(self, row: Row, fresh: Clean) -> Clean:
        if row.id not in self._kept and fresh.nbytes <= self._left:
            self._left -= fresh.nbytes
            self._kept[row.id] = fresh
        return fresh

    @torch.no_grad()
    def _run(self, row: Row, *taps: int) -> tuple[Clean, dict[int, Tensor]]:
        token_ids = _text(row)
        cache = self._verifier.new_cache(1, len(token_ids))
        layout = chain(token_ids[None], cache.lengths).to(self._verifier.device)
        out = self._verifier.body(layout, cache, taps=taps)
        tensors = {"hidden": out.hidden[0].to(self._store)}
        if self._with_keys:
            tensors["keys"] = cache.keys[:, 0].to(self._store)
            tensors["values"] = cache.values[:, 0].to(self._store)
        if self._disk is not None:
            self._disk.put(self._key(row), tensors)
        return Clean(token_ids, **tensors), out.taps


def _text(row: Row) -> Tensor:
    return torch.tensor([*row.prompt_ids, *row.continuation_ids])


def stacked(streams: Sequence[Clean], verifier: Verifier) -> KVCache:
    """The keys and values of several texts as one cache, each with its own length."""
    lengths = torch.tensor([len(stream.token_ids) for stream in streams])
    cache = verifier.new_cache(len(streams), int(lengths.max()))
    for request, stream in enumerate(streams):
        assert stream.keys is not None
        assert stream.values is not None
        cache.keys[:, request, :, : lengths[request]] = stream.keys
        cache.values[:, request, :, : lengths[request]] = stream.values
    cache.lengths += lengths
    return cache


def padded(tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> Tensor:
    """``[L_b, ...]`` tensors as one ``[B, max L, ...]``, zeros behind the short ones."""
    result = torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True)
    return result if dtype is None else result.to(dtype)
