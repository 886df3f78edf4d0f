"""A file that a killed run can continue: a header line, then one finished piece per line."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from breakeven.errors import DataError

SYNC_EVERY = 8  # lines between two fsyncs


class Journal:
    """Append-only JSON lines under a header that says what they belong to.

    Opening an existing journal reads what is whole, drops a truncated or broken line (counted in
    ``broken``) and continues behind it. A header that differs is refused, naming the field.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path, self.broken = path, 0
        self.entries: list[dict[str, Any]] = []
        self._unsynced = 0
        if path.exists():
            self._read(header)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rewrite(header)
        self._file = path.open("ab", buffering=0)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry at once. Raises :class:`DataError` when the disk is full."""
        whole = self._file.tell()
        try:
            self._file.write(_line(entry))
            self._unsynced += 1
            if self._unsynced >= SYNC_EVERY:
                self.sync()
        except OSError as error:
            self._undo(whole)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._unsynced = 0
            raise DataError(
                f"{self.path}: the disk is full; the {len(self.entries)} entries written so far "
                "are safe: free some space and run the same command again"
            ) from None
        self.entries.append(dict(entry))

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""
        os.fsync(self._file.fileno())
        self._unsynced = 0

    def close(self) -> None:
        """Sync what is not yet, and close."""
        if not self._file.closed:
            if self._unsynced:
                self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _undo(self, whole: int) -> None:
        """Cut off a line that was written in part; what cannot be cut is dropped on resume."""
        try:
            os.ftruncate(self._file.fileno(), whole)
        except OSError:
            return

    def _read(self, header: Mapping[str, Any]) -> None:
        lines = self.path.read_bytes().split(b"\n")
        found = _parsed(lines[0])
        if found is None or len(lines) == 1:  # killed while the header was being written
            self._rewrite(header)
            return
        for key, value in header.items():
            if found.get(key) != value:
                raise DataError(
                    f"{self.path}: begun with {key} = {found.get(key)!r}, this run has {value!r}; "
                    "go on with the same settings, or start again with --no-resume"
                )
        whole = [entry for line in lines[1:-1] if (entry := _parsed(line)) is not None]
        self.entries = whole
        self.broken = len(lines) - 2 - len(whole) + (lines[-1] != b"")
        if self.broken:
            self._rewrite(header)

    def _rewrite(self, header: Mapping[str, Any]) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("wb") as file:
            file.write(_line(header))
            file.writelines(_line(entry) for entry in self.entries)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
