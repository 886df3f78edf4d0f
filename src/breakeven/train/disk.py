"""A size-bounded cache of tensors on disk, one safetensors file per key.

A file is written aside and moved into place, so a kill leaves no half entry; several runs may use
one folder at once. The entries read or written longest ago make room for new ones. A damaged
entry counts as missing.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

ABANDONED_S = 3600.0
"""Age of an unfinished file that no living run can still be writing."""


class DiskCache:
    """Tensors by key in ``folder``, ``budget_bytes`` of them at most.

    >>> import tempfile, torch
    >>> cache = DiskCache(Path(tempfile.mkdtemp()), budget_bytes=1000)
    >>> cache.put("a", {"x": torch.ones(3)})
    >>> found = cache.get("a")
    >>> found["x"].tolist(), cache.get("b")
    ([1.0, 1.0, 1.0], None)
    """

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder, self._budget = folder, budget_bytes
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob("*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > ABANDONED_S:
                    part.unlink()
        self._held = sum(size for _, size, _ in self._entries())

    def get(self, key: str) -> dict[str, Tensor] | None:
        """The tensors of a key, or None."""
        path = self._path(key)
        try:
            found = load_file(path)
            os.utime(path)  # used now
        except FileNotFoundError:  # never written, or evicted by another run
            return None
        except (SafetensorError, OSError):
            path.unlink(missing_ok=True)
            return None
        return found

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep tensors; nothing happens if they exceed the whole budget."""
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        if size > self._budget:
            return
        aside = self._folder / f"{key}.{uuid.uuid4().hex}.part"
        try:
            save_file({name: t.contiguous() for name, t in tensors.items()}, aside)
            size = aside.stat().st_size
            if self._held + size > self._budget:
                self._evict(size)
            aside.replace(self._path(key))
        finally:
            aside.unlink(missing_ok=True)
        self._held += size

    def _evict(self, needed: int) -> None:
        """Make room; counted anew, since other runs come and go."""
        entries = sorted(self._entries())
        self._held = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if self._held + needed <= self._budget:
                return
            path.unlink(missing_ok=True)
            self._held -= size

    def _entries(self) -> list[tuple[float, int, Path]]:
        """When used last, bytes, path."""
        found = []
        for path in self._folder.glob("*.safetensors"):
            with suppress(FileNotFoundError):  # evicted by another run just now
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        return found

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"
