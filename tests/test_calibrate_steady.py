"""Calibration of a machine whose prices are known and never change: is the arithmetic right?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from breakeven.cost.calibration import Calibration
from breakeven.drafters.registry import METHODS
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.check import Checked, answers_beside
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.calibration.run import calibrate
from breakeven.measure.calibration.walkers import walkers_of
from measuring import loaded
from steady import ROUND, pass_seconds, steady
from tiny import tiny_verifier

LAYERS = 4
PLAN = CalibrationPlan(
    drafters=tuple(METHODS), widths=(1, 2, 3, 4, 6), contexts=(32, 128), batches=(1, 2),
    lengths=(1, 3), minutes=1e-6,
)  # fmt: skip


def found_at(
    rate: float, drafters: tuple[str, ...] = PLAN.drafters
) -> tuple[Calibration, list[Checked]]:
    plan = replace(PLAN, acceptance=Acceptance((rate,)), drafters=drafters)
    return calibrate(loaded(tiny_verifier(vocab=64, layers=LAYERS)), plan)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_predictions_are_right_on_a_machine_that_is_steady(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    """Where acceptance leaves nothing to chance, nothing is left of the error."""
    steady(monkeypatch, LAYERS)
    short = partial(answers_beside, tokens=32)
    monkeypatch.setattr("breakeven.measure.calibration.run.answers_beside", short)
    _, checked = found_at(rate)
    assert {c.config.rpartition("-k")[0] for c in checked} == {*METHODS, "nothing"}
    for c in checked:
        assert c.measured_committed == c.committed
        assert c.error == pytest.approx(0, abs=0.006), c.config


def test_prices_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    steady(monkeypatch, LAYERS)
    found, _ = found_at(0.5, ("ngram", "early-exit", "peft-bd-fused"))
    assert found.step() == pytest.approx(0.010 + ROUND)
    assert found.outside_seconds == pytest.approx(ROUND)
    for batch in (1, 2):
        for width in (1, 2, 4, 6):
            wanted = pass_seconds(width, batch, "verifier", LAYERS)
            assert found.seconds(width, batch=batch) == pytest.approx(wanted)
        cost = found.round_cost("ngram", 3, batch=batch)
        step = pass_seconds(1, batch, "verifier", LAYERS) + ROUND
        rounds = pass_seconds(4, batch, "verifier", LAYERS) + ROUND
        assert cost.break_even == pytest.approx(rounds / step)
        half = LAYERS // 2
        drafting = 4 * pass_seconds(1, batch, f"{half} layers", LAYERS)
        rest = pass_seconds(4, batch, f"{LAYERS - half} layers", LAYERS)
        own = drafting + rest - pass_seconds(4, batch, "verifier", LAYERS)
        assert found.draft_seconds("early-exit", 3, batch) == pytest.approx(own)
        whole = pass_seconds(4 + 4 * 3, batch, "verifier", LAYERS)
        own = whole - pass_seconds(4, batch, "verifier", LAYERS)
        assert found.draft_seconds("peft-bd-fused", 3, batch) == pytest.approx(own)


@pytest.mark.parametrize("positions", [40, 1024])
def test_rounds_are_whole_however_many_are_timed(positions: int) -> None:
    """An answer that has no room for another is begun again, so nothing shorter gets a price."""
    plan = replace(PLAN, drafters=("peft-bd", "peft-bd-fused", "peft-bd-gated", "suffix"),
                   widths=(1, 2), acceptance=Acceptance((1.0,)))  # fmt: skip
    verifier = tiny_verifier(vocab=64, layers=LAYERS, max_position_embeddings=positions)
    plan = plan.within(verifier.shape)
    walkers, _ = walkers_of(verifier, plan)
    for walker in walkers:
        walker.step()
        for _ in range(30 if positions == 1024 else 12):
            walker.step()
            width = walker.k + 1 - walker.free
            if walker.name == "peft-bd-fused":
                width = (walker.k + 1) ** 2
            assert walker.rows == width, walker.key
            own = [r for r in walker.ledger.rounds if walker.name != "nothing"]
            assert all(r.drafted == r.accepted == walker.k for r in own), walker.key


def test_a_model_of_few_positions_is_checked_with_shorter_answers() -> None:
    plan = replace(PLAN, drafters=("ngram",), widths=(1, 2), acceptance=Acceptance((0.8,)))
    verifier = tiny_verifier(vocab=64, layers=LAYERS, max_position_embeddings=40)
    _, checked = calibrate(loaded(verifier), plan)
    assert [c.config for c in checked] == ["nothing-k1", "nothing-k3", "ngram-k1", "ngram-k3"]
    assert all(c.measured_committed == pytest.approx(c.committed, abs=0.4) for c in checked)


def test_widths_that_only_rounds_had_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    steady(monkeypatch, LAYERS)
    plan = replace(PLAN, widths=(1, 2), drafters=("ngram", "peft-bd-gated"), lengths=(1, 8))
    found, _ = calibrate(loaded(tiny_verifier(vocab=64, layers=LAYERS)), plan)
    assert found.curves[2].widths == (1, 2, 8, 9)
    for batch, width in ((1, 8), (1, 9), (2, 9)):
        wanted = pass_seconds(width, batch, "verifier", LAYERS)
        assert found.seconds(width, batch=batch) == pytest.approx(wanted)
        assert found.seconds(width, 32, batch) == pytest.approx(wanted), "behind any context"
