"""A machine that is always equally fast: time passes only where passes and rounds are paid for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from breakeven.core import Pass, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.batch import Batch

ROUND = 3e-4
"""Seconds of a round, or of a plain step, that lie in no pass."""


def pass_seconds(rows: int, batch: int, model: str, layers: int) -> float:
    """Of a pass over the verifier, a part of it, or a drafter's own layer."""
    more = rows * batch - 1
    if model == "verifier":
        return 0.010 + 0.0002 * more
    if model.endswith("layers"):
        return (0.010 + 0.0002 * more) * int(model.split()[0]) / layers
    return 0.001 + 0.00005 * more


def steady(monkeypatch: pytest.MonkeyPatch, layers: int) -> None:
    """Set the clock to such a machine, with a verifier of so many layers."""
    now = 0.0

    @contextmanager
    def buy(
        self: Ledger, phase: Phase, *, rows: int, batch: int, context: int, mode: str, model: str
    ) -> Iterator[None]:
        nonlocal now
        yield
        spent = pass_seconds(rows, batch, model, layers)
        now += spent
        self.passes.append(Pass(phase, rows, batch, context, spent, mode, model))

    inside = Batch.step

    def step(self: Batch) -> None:
        nonlocal now
        inside(self)
        now += ROUND

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(Ledger, "buy", buy)
    monkeypatch.setattr(Batch, "step", step)
    monkeypatch.setattr("breakeven.measure.calibration.run.busy_now", lambda: None)
