"""What other processes do to a measurement, told from what we do ourselves."""

from __future__ import annotations

import time

import pytest
import torch

from breakeven.measure import neighbours


def test_others_who_are_busy_now_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([10.0, 11.0])  # one core for as long as we watch
    monkeypatch.setattr(neighbours, "_others_seconds", lambda: next(seen))
    monkeypatch.setattr(neighbours, "_physical", lambda logical: 2.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    clock = iter([0.0, 1.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    warning = neighbours.busy_now(seconds=0.0)
    assert warning is not None
    assert "kept 1.0 of 2 cores busy when measuring began" in warning


def test_our_own_work_is_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_others_seconds", lambda: 10.0)
    assert neighbours.busy_now(seconds=0.01) is None
    watched = neighbours.Neighbours()
    sum(i * i for i in range(100_000))
    assert watched.cores == 0.0
    assert neighbours.disturbed(watched.cores) is None
