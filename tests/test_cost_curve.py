"""The cost curve interpolates what was measured and survives a trip through its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cost.curve import CostCurve, Point
from breakeven.errors import DataError

seconds = st.floats(1e-4, 10.0)
widths = st.lists(st.integers(2, 64), unique=True, max_size=6)


@st.composite
def curves(draw: st.DrawFn) -> CostCurve:
    contexts = draw(st.lists(st.integers(0, 4096), unique=True, min_size=1, max_size=3))
    points = [
        Point(context, rows, *[draw(seconds)] * 3)
        for context in contexts
        for rows in (1, *draw(widths))
    ]
    return CostCurve(tuple(sorted(points)))


@given(curves())
def test_measured_points_come_back(curve: CostCurve) -> None:
    for point in curve.points:
        assert curve.seconds(point.rows, point.context) == point.seconds


@given(curves(), st.integers(1, 64), st.integers(0, 5000))
def test_between_points_stays_between_them(curve: CostCurve, rows: int, context: int) -> None:
    if rows <= min(max(p.rows for p in curve.points if p.context == c) for c in curve.contexts):
        times = [p.seconds for p in curve.points]
        assert min(times) * (1 - 1e-9) <= curve.seconds(rows, context) <= max(times) * (1 + 1e-9)


@given(curves(), st.integers(0, 64))
def test_wider_than_measured_never_gets_cheaper(curve: CostCurve, more: int) -> None:
    widest = curve.widths[-1]
    context = next(p.context for p in curve.points if p.rows == widest)
    assert curve.seconds(widest + more, context) >= curve.seconds(widest, context)


@given(curves(), st.integers(0, 5000))
def test_one_row_is_the_unit(curve: CostCurve, context: int) -> None:
    assert curve.relative(1, context) == 1.0


@given(curves())
def test_file_round_trip(tmp_path_factory: pytest.TempPathFactory, curve: CostCurve) -> None:
    path = tmp_path_factory.mktemp("curve") / "cost_curve.csv"
    curve.write(path)
    assert CostCurve.read(path) == curve


def test_context_between_and_beyond() -> None:
    curve = CostCurve((*CostCurve.of({1: 2.0}, 100).points, *CostCurve.of({1: 4.0}, 300).points))
    assert curve.seconds(1, 200) == 3.0
    assert (curve.seconds(1, 0), curve.seconds(1, 9999)) == (2.0, 4.0)
    assert curve.seconds(0, 200) == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no points"),
        ("rows,context\n1,2\n", "not a cost curve"),
        ("rows,context,seconds\n1,0,abc\n", "not a cost curve"),
        ("rows,context,seconds\n2,0,0.1\n", "no one-row pass"),
        ("rows,context,seconds\n1,0,-1\n", "seconds above 0"),
        ("rows,context,seconds,low,high\n1,0,1,1,inf\n", "1 rows in 1.0 to inf s"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "cost_curve.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        CostCurve.read(path)


def test_missing_file_says_who_writes_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="breakeven bench"):
        CostCurve.read(tmp_path / "cost_curve.csv")
