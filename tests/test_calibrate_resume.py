"""A calibration that was stopped goes on after the last stage that ended."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.cli.app import run
from breakeven.cost.calibration import Calibration
from breakeven.errors import DataError
from breakeven.measure.calibration import run as running
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.calibration.rounds import Rounds, measure_rounds
from breakeven.measure.calibration.stages import Stages, finished, require_room, setting_of
from breakeven.verifier.load import Loaded
from measuring import loaded
from tiny import tiny_verifier

WORDS = ["calibrate", "--minutes", "0.001", "--widths", "1,2", "--contexts", "8", "--batches", "1",
         "-k", "1,2", "-d", "ngram", "-d", "peft-bd", "--acceptance", "0.8"]  # fmt: skip


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda *_, **__: loaded())


def stop_in(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Ctrl-C as soon as this function is called."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, stop)


def test_a_stopped_run_goes_on_behind_its_stages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*WORDS, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        stop_in(patch, "breakeven.measure.calibration.run.compared")
        assert run(words) == 130
    assert "finished stages are kept" in capsys.readouterr().err
    assert finished(tmp_path / "out") == ["passes", "rounds"]
    stored = json.loads((tmp_path / "out/stages/rounds.json").read_text())["content"]["found"][
        "rounds"
    ]
    assert run([*words, "--dry-run"]) == 0
    assert "used again if nothing has changed: passes, rounds" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        for name in ("measure_passes", "measure_rounds"):
            stop_in(patch, f"breakeven.measure.calibration.run.{name}")
        assert run(words) == 0
    assert capsys.readouterr().err.count("not repeated") == 2
    assert Calibration.read(tmp_path / "out").drafters == Rounds.of(stored).drafters
    assert not (tmp_path / "out/stages").exists()


def test_a_disk_that_is_full_at_the_end_costs_no_measurement(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*WORDS, "--out", str(tmp_path / "out")]

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for place in ("breakeven.report.calibration.write_page",
                  "breakeven.cost.calibration.Calibration.write"):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            assert run(words) == 2
        assert "run the same command again" in capsys.readouterr().err
    assert run(words) == 0
    assert capsys.readouterr().err.count("not repeated") == 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "calibration.html", "calibration.json",
    ]  # fmt: skip


def test_a_run_that_measured_nothing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in(monkeypatch, "breakeven.measure.calibration.run.measure_passes")
    assert run([*WORDS, "--out", str(tmp_path / "out")]) == 130
    assert not (tmp_path / "out").exists()


def test_force_measures_everything_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*WORDS, "--out", str(tmp_path)]
    assert run(words) == 0
    assert run(words) == 2
    stop_in(monkeypatch, "breakeven.measure.calibration.run.measure_passes")
    assert run([*words, "--force"]) == 130
    assert list(tmp_path.iterdir()) == [], "the old result is gone, so the same command goes on"


def other_model(found: Loaded) -> Loaded:
    return replace(found, identity=replace(found.identity, weights_sha256="f" * 64))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda setting: setting | {"machine": {"cpu": "another"}}, "another machine"),
        (lambda setting: setting | {"version": "0"}, "another version"),
        (lambda _: setting_of(other_model(loaded())), "another model"),
    ],
)
def test_stages_of_another_setting_are_not_used(
    change: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = setting_of(loaded())
    assert Stages(tmp_path, setting).of("passes", {"cells": [(1, 2)]}, lambda: {"a": 1}) == {"a": 1}
    again = Stages(tmp_path, setting).of("passes", {"cells": [(1, 2)]}, lambda: {"a": 2})
    assert again == {"a": 1}, "a tuple and a stored list are the same"
    changed = Stages(tmp_path, change(setting))
    assert changed.of("passes", {"cells": [(1, 2)]}, lambda: {"a": 3}) == {"a": 3}
    assert said in capsys.readouterr().err
    assert Stages(tmp_path, setting).of("passes", {"cells": []}, lambda: {"a": 4}) == {"a": 4}


def test_a_stage_cut_off_is_measured_anew(tmp_path: Path) -> None:
    (tmp_path / "passes.json").write_text('{"key": {')
    assert Stages(tmp_path, {}).of("passes", {}, lambda: {"a": 1}) == {"a": 1}


def test_rounds_are_stored_whole() -> None:
    plan = CalibrationPlan(
        drafters=("ngram", "peft-bd"), widths=(1, 2), contexts=(8,), batches=(1, 2), lengths=(1, 2),
        base=8, minutes=0.001,
    )  # fmt: skip
    found = measure_rounds(tiny_verifier(), plan, 0.01)
    assert Rounds.of(json.loads(json.dumps(found.row()))) == found
    assert set(found.verify) == {1, 2}
    assert found.verify[1].widths[:2] == (1, 2), "plain steps and the verify passes of K = 1"


def test_a_file_in_the_way_is_said_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        require_room(tmp_path / "file" / "deeper")
    require_room(tmp_path / "new" / "deeper")
    assert not (tmp_path / "new").exists()
    assert running.NOWHERE.of("x", {}, lambda: {"a": 1}) == {"a": 1}
