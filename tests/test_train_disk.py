"""The disk cache of verifier states: the same numbers, bounded, safe against kills and runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from breakeven.train.clean import CleanStream
from breakeven.train.disk import ABANDONED_S, DiskCache
from breakeven.verifier.decoder import LeanVerifier
from tiny import tiny_verifier
from training import own_rows


def stream(
    verifier: LeanVerifier,
    folder: Path,
    *,
    budget: int = 1 << 30,
    owner: str = "w",
    keys: bool = True,
) -> CleanStream:
    """No memory, only disk."""
    return CleanStream(
        verifier,
        with_keys=keys,
        store=torch.float16,
        budget_bytes=0,
        disk=DiskCache(folder, budget),
        owner=owner,
    )


def test_a_later_run_reads_what_an_earlier_one_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    first = [stream(verifier, tmp_path).of(row) for row in rows]
    calls: list[int] = []
    body = LeanVerifier.body

    def counted(self: LeanVerifier, *args: object, **kwargs: object) -> object:
        calls.append(1)
        return body(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(LeanVerifier, "body", counted)
    later = stream(verifier, tmp_path)
    for row, one in zip(rows, first, strict=True):
        two = later.of(row)
        for name in ("token_ids", "hidden", "keys", "values"):
            assert torch.equal(getattr(one, name), getattr(two, name))
    assert not calls
    stream(verifier, tmp_path, owner="other weights").of(rows[0])
    stream(verifier, tmp_path, keys=False).of(rows[0])
    assert len(calls) == 2  # nothing of another verifier or of another kind is taken


def test_the_oldest_entries_make_room(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)
    tensors = {"x": torch.zeros(75)}  # 300 bytes and a header
    for at, key in enumerate(("a", "b")):
        cache.put(key, tensors)
        os.utime(tmp_path / f"{key}.safetensors", (at, at))
    assert cache.get("a") is not None  # now b is the oldest
    cache.put("c", tensors)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    cache.put("huge", {"x": torch.zeros(1000)})
    assert cache.get("huge") is None
    held = sum(f.stat().st_size for f in tmp_path.iterdir())
    assert held <= 1000


def test_damaged_and_unfinished_files_do_no_harm(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10_000)
    cache.put("a", {"x": torch.ones(10)})
    path = tmp_path / "a.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    assert cache.get("a") is None
    assert not path.exists()
    old, young = tmp_path / "b.1.part", tmp_path / "c.2.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (0, time.time() - ABANDONED_S - 1))
    DiskCache(tmp_path, 10_000)
    assert not old.exists()
    assert young.exists()  # another run may be writing it


def test_another_run_may_take_an_entry_away(tmp_path: Path) -> None:
    one, two = DiskCache(tmp_path, 10_000), DiskCache(tmp_path, 700)
    one.put("a", {"x": torch.ones(75)})
    two.put("b", {"x": torch.ones(75)})
    two.put("c", {"x": torch.ones(75)})  # over its budget: the oldest, a, goes
    assert one.get("a") is None
    assert one.get("c") is not None
