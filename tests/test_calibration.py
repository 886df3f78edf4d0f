"""The calibration file: reading, writing, interpolation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cost.calibration import Calibration, DraftPrice, along
from breakeven.cost.curve import CostCurve, Point
from breakeven.errors import DataError
from breakeven.report.calibrated import calibrated_lines


def curve(scale: float = 1.0) -> CostCurve:
    """Two contexts: the longer one costs 0.004 s more at every width."""
    seconds = {1: 0.020, 4: 0.022, 8: 0.030, 16: 0.050}
    return CostCurve(
        tuple(
            Point(c, w, scale * (s + more), scale * s, scale * (s + 0.01))
            for c, more in ((64, 0.0), (512, 0.004))
            for w, s in seconds.items()
        )
    )


def calibration(**changes: Any) -> Calibration:
    given: dict[str, Any] = {
        "machine": {"cpu": "x", "threads": 2},
        "verifier": {"name": "m", "weights_sha256": "a" * 64},
        "mode": "native",
        "threads": 2,
        "step_seconds": 0.021,
        "outside_seconds": 0.0015,
        "base": 64,
        "curves": {1: curve(), 4: curve(2.0)},
        "drafters": {
            "gated": {
                2: DraftPrice(2, {1: 0.020}, {1: 0.001}),
                4: DraftPrice(4, {1: 0.024, 4: 0.048}, {1: 0.001, 4: 0.002}),
            }
        },
        "other_modes": {"eager": {1: curve(3.0)}},
    }
    return Calibration(**{**given, **changes})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = calibration(warnings=("busy",), command="breakeven calibrate")
    made.write(tmp_path / "deep" / "calibration.json")
    assert Calibration.read(tmp_path / "deep" / "calibration.json") == made
    assert Calibration.read(tmp_path / "deep") == made, "a folder stands for its file"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["calibration.json"]


def test_the_agreed_fields_are_there() -> None:
    row = calibration().row()
    assert {"machine", "verifier", "mode", "threads", "step_seconds", "widths", "contexts",
            "batches", "seconds", "outside_seconds", "drafters"} <= set(row)  # fmt: skip
    assert row["batches"] == [1, 4]
    assert row["contexts"] == [64, 512]
    assert row["seconds"]["4"]["64"]["8"][0] == 0.060


def test_seconds_are_linear_in_width_context_and_batch() -> None:
    made = calibration()
    assert made.seconds(6) == pytest.approx(0.026)
    assert made.seconds(4, context=288) == pytest.approx(0.024)
    assert made.seconds(4, batch=2) == pytest.approx(0.022 + (0.044 - 0.022) / 3)
    assert made.seconds(1, batch=7) == pytest.approx(0.040 + 0.020), "the last slope goes on"


def test_a_round_costs_its_parts_over_the_plain_step() -> None:
    cost = calibration().round_cost("gated", 4)
    assert cost.draft == pytest.approx(0.024 / 0.021)
    assert cost.verify == pytest.approx(0.022 / 0.021), "a free first token: 4 rows for 4 drafts"
    assert cost.other == pytest.approx(0.001 / 0.021)


def test_prices_between_measured_lengths() -> None:
    made = calibration()
    assert made.draft_seconds("gated", 3) == pytest.approx(0.022)
    assert made.verify_rows("gated", 3) == 3
    assert made.outside(None, 3) == 0.0015


def test_the_plain_step_grows_with_the_pass_alone() -> None:
    made = calibration()
    assert made.step() == pytest.approx(0.021)
    assert made.step(context=512, batch=4) == pytest.approx(0.048 + 0.001)


@given(
    st.dictionaries(st.integers(1, 64), st.floats(0.001, 1.0), min_size=1, max_size=5),
    st.integers(1, 100),
)
def test_interpolation_stays_between_its_points_and_never_falls_beyond(
    points: dict[int, float], x: int
) -> None:
    found = along(points, x)
    if x in points:
        assert found == pytest.approx(points[x])
    if x <= max(points):
        assert min(points.values()) - 1e-12 <= found <= max(points.values()) + 1e-12
    else:
        assert found >= points[max(points)]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda row: row.pop("seconds"), "'seconds' is missing"),
        (lambda row: row.update(kind="bench"), "kind is 'bench'"),
        (lambda row: row.update(seconds={"1": {"64": {"2": 0.1}}}), "no one-row pass"),
        (lambda row: row.update(seconds={"2": row["seconds"]["1"]}), "batch 1"),
        (lambda row: row.update(step_seconds=0), "above 0"),
        (lambda row: row["drafters"]["gated"]["2"]["seconds"].update({"1": -1}), "-1.0 seconds"),
        (lambda row: row.update(drafters=[]), "not a calibration"),
    ],
)
def test_a_spoilt_file_is_named(tmp_path: Path, spoil: Any, said: str) -> None:
    row = json.loads(json.dumps(calibration().row()))
    spoil(row)
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(row))
    with pytest.raises(DataError, match=said):
        Calibration.read(path)


WRONG = (None, "x", -1, 0.5, [], {}, [None], 12345678901234567890123, float("inf"), float("nan"))


def test_no_value_in_a_calibration_ends_in_a_traceback(tmp_path: Path) -> None:
    """Every value at every depth, replaced by everything it should not be, and read by oracle."""
    file = tmp_path / "calibration.json"
    text = json.dumps(calibration().row())
    for place in _places(json.loads(text)):
        for value in WRONG:
            row = json.loads(text)
            inner = row
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            file.write_text(json.dumps(row))
            try:
                found = Calibration.read(file)
            except DataError:
                continue
            _, lines = calibrated_lines(found, (0.8, 0.5))
            assert all(isfinite(line.value) for line in lines), (place, value)


def _places(row: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values in a JSON text are, containers included."""
    inside = row.items() if isinstance(row, dict) else enumerate(row)
    for key, value in inside:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*above, key))


def test_an_absent_file_says_what_writes_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="breakeven calibrate"):
        Calibration.read(tmp_path / "none.json")


def test_an_unknown_drafter_names_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'gated'"):
        calibration().round_cost("gate", 2)
