"""Scales hit their values, labels keep clear of each other, marks differ."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import combinations
from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cost.curve import CostCurve
from breakeven.measure.statistics import prompts_within
from breakeven.report.categories import category_widths
from breakeven.report.charts.cost import cost_chart
from breakeven.report.charts.frame import NARROW, WIDE, Scale, rounded
from breakeven.report.charts.labels import Box, place
from breakeven.report.charts.margins import margin_chart
from breakeven.report.charts.price import price_chart
from breakeven.report.charts.ratios import category_charts, ratio_chart
from breakeven.report.charts.speed import speed_chart
from breakeven.report.charts.survival import survival_chart
from breakeven.report.entries import Entry, Mark, entries_of
from breakeven.report.records import Acceptance, Audit, Margins
from breakeven.report.run import load_run
from fake_run import FAKES, write_run

WIDTHS = pytest.mark.parametrize("width", [WIDE, NARROW])


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return entries_of([load_run(write_run(tmp_path_factory.mktemp("runs") / "run"))])


@given(st.floats(-1e3, 1e3), st.floats(0.01, 1e3), st.integers(2, 10))
def test_ticks_are_round_and_inside(low: float, span: float, about: int) -> None:
    scale = Scale(low, low + span, 0, 100)
    ticks = scale.ticks(about)
    assert all(-0.2 <= tick.at <= 100.2 for tick in ticks)
    assert len(ticks) <= 3 * about + 1
    assert len({tick.text for tick in ticks}) == len(ticks)


@given(st.floats(0, 100), st.floats(0.1, 100))
def test_rounding_only_widens(low: float, span: float) -> None:
    down, up = rounded(low, low + span)
    assert down <= low + 1e-6
    assert up >= low + span - 1e-6


def test_labels_keep_clear_of_each_other_and_of_marks() -> None:
    points = [(100 + 40 * (i % 4), 100 + 30 * (i // 4), f"drafter-{i}") for i in range(8)]
    labels = place(points, [], Box(0, 0, 700, 400))
    boxes = [label.box for label in labels]
    assert all(one.overlap(two) == 0 for one, two in combinations(boxes, 2))
    assert all(b.overlap(Box.around(x, y, 5)) == 0 for b in boxes for x, y, _ in points)
    assert all(box.outside(Box(0, 0, 700, 400)) == 0 for box in boxes)


def test_forty_nine_marks_differ() -> None:
    assert len({Mark.number(i) for i in range(49)}) == 49


@WIDTHS
def test_the_speed_chart_puts_faster_higher(entries: list[Entry], width: int) -> None:
    chart = speed_chart(entries, width)
    assert chart is not None
    for entry, dot in zip(entries, chart.dots, strict=True):
        assert entry.speed is not None
        assert entry.speed.ratio is not None
        assert (dot.y < chart.plain_y) == (entry.speed.ratio > 1)
        assert (dot.x > dot.need_x) == (entry.speed.ratio > 1)
    boxes = [label.box for label in chart.labels]
    assert all(one.overlap(two) == 0 for one, two in combinations(boxes, 2))


@WIDTHS
def test_a_bar_is_as_long_as_the_break_even(entries: list[Entry], width: int) -> None:
    chart = price_chart(entries, width)
    assert chart is not None
    assert chart.bars[0].name == "plain decoding"
    for bar in chart.bars[1:]:
        entry = next(e for e in entries if e.name == bar.name)
        assert entry.speed is not None
        assert bar.end == pytest.approx(chart.frame.x(entry.speed.break_even or 0), abs=0.2)
        assert bar.pays == ((entry.speed.ratio or 0) > 1)
        length = bar.end - chart.frame.left
        assert sum(s.width for s in bar.segments) == pytest.approx(length, abs=0.4)


@WIDTHS
def test_intervals_lie_around_their_ratio(entries: list[Entry], width: int) -> None:
    chart = ratio_chart(entries, width)
    assert chart is not None
    for each in [chart, *category_charts(entries, width)]:
        assert all(w.low <= w.x <= w.high for w in each.whiskers)
    assert [w.x for w in chart.whiskers] == sorted((w.x for w in chart.whiskers), reverse=True)
    assert {w.side for w in chart.whiskers} == {"above", "below"}


@WIDTHS
def test_an_interval_of_few_prompts_does_not_flatten_the_others(
    entries: list[Entry], width: int
) -> None:
    wild = copy.deepcopy(entries)
    row, rows = wild[0].by_category[0], wild[0].run.performance
    rows[rows.index(row)] = row.model_copy(update={"ratio_low": 0.01, "ratio_high": 8848.55})
    (chart, *_), before = category_charts(wild, width), category_charts(entries, width)[0]
    whisker = next(w for w in chart.whiskers if w.name == row.category)
    assert (whisker.low, whisker.high, whisker.caps) == (whisker.x, whisker.x, "")
    assert whisker.side == "across", "neither above nor below"
    others = [w for w in chart.whiskers if w.name != row.category]
    assert all(w.caps.count("v") == 2 for w in others)
    assert chart.frame.x(1.1) - chart.frame.x(1.0) > 0.3 * (
        before.frame.x(1.1) - before.frame.x(1.0)
    )


@WIDTHS
def test_survival_has_one_point_for_each_draft(entries: list[Entry], width: int) -> None:
    chart = survival_chart(entries, width)
    assert chart is not None
    assert [len(line.points) for line in chart.lines] == [fake.k for fake in FAKES]


def seldom(entries: list[Entry], reached: tuple[float, ...]) -> Entry:
    """The first entry as if it had drafted so far in so many rounds, all accepted."""
    run = copy.copy(entries[0].run)
    own = Acceptance(
        config=entries[0].config, category="all", rounds=1000,
        drafted=round(1000 * sum(reached)), survival=reached, reached=reached,
    )  # fmt: skip
    run.acceptance = [own]
    return replace(entries[0], run=run)


def test_why_categories_are_unsure_is_said(entries: list[Entry]) -> None:
    assert category_widths(entries) is None, "no numbers of prompts in these files"
    entry = copy.deepcopy(entries[0])
    rows = entry.run.performance
    rows[:] = [row.model_copy(update={"prompts": 3, "spread": 0.3}) for row in rows]
    wild = rows.index(entry.by_category[0])
    rows[wild] = rows[wild].model_copy(update={"ratio_low": 0.01})
    said = category_widths([entry])
    assert said is not None
    intervals = len(entry.by_category)
    assert f"are 3 prompts, and the 95 % intervals hold for all {intervals} at once" in said
    assert "Left out: 1 interval whose ends are more than 3 times apart" in said
    needed = prompts_within(0.3, 0.1, intervals)
    assert f"About {needed} prompts a category would bring them to ±10 % of the ratio." in said

    alone = {"prompts": 1, "ratio_low": None, "ratio_high": None}
    rows[:] = [row.model_copy(update=alone) for row in rows]
    assert (
        category_widths([entry]) == "Behind each ratio here is 1 prompt: too few for an interval."
    )


@WIDTHS
def test_what_was_not_drafted_was_not_rejected(entries: list[Entry], width: int) -> None:
    """An adaptive policy drafts now and then, and then all of it is accepted: no cliff."""
    entry = seldom(entries, (0.08, 0.05, 0.03, 0.001))
    chart = survival_chart([entry], width)
    assert chart is not None
    [line] = chart.lines
    assert [y for _, y in line.points] == [chart.frame.y(1.0)] * 3, (
        "the line ends, it does not fall"
    )
    assert line.titles[2].endswith("position 3: 100.0% of the 30 rounds that drafted so far")


@WIDTHS
def test_a_policy_that_drafts_little_is_marked_at_its_mean_width(
    entries: list[Entry], width: int
) -> None:
    entry = seldom(entries, (0.08, 0.05, 0.03, 0.001))
    assert entry.mean_rows == pytest.approx(1.161)
    assert entry.verify_rows >= 4
    curve = entry.run.curve
    assert curve is not None
    [mark] = cost_chart(curve, [entry], width).used
    assert mark.x == pytest.approx(cost_chart(curve, [entry], width).frame.x(log2(1.161)))
    assert mark.title.startswith(f"{entry.name} verified 1.2 rows on average, ")


@WIDTHS
def test_the_cost_curve_marks_the_widths_in_use(entries: list[Entry], width: int) -> None:
    curve = entries[0].run.curve
    assert curve is not None
    chart = cost_chart(curve, entries, width)
    assert [len(c.points) for c in chart.curves] == [10, 10]
    assert len(chart.used) == len(entries)
    assert len({(u.x, u.y) for u in chart.used}) == len(entries)


def test_a_curve_of_one_width_can_be_drawn() -> None:
    assert cost_chart(CostCurve.of({1: 0.02}), [], WIDE).curves[0].points


def test_a_divergence_is_marked_in_its_bin() -> None:
    audit = Audit.model_validate(
        {
            "config": "x",
            "verdict": "near-tie",
            "margins": {"edges": [0, 1, 2], "counts": [3, 0]},
            "divergences": [{"id": "a", "position": 1, "gap": 0.5, "class": "near-tie"}],
        }
    )
    chart = margin_chart(audit, WIDE)
    assert chart is not None
    assert [column.divergences for column in chart.columns] == [1, 0]
    empty = audit.model_copy(update={"margins": Margins(edges=(0, 1), counts=(0,))})
    assert margin_chart(empty, WIDE) is None


def test_a_free_first_token_is_told_by_survival(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    run.configuration["configurations"] = [{"name": f.name, "k": f.k} for f in FAKES]
    free = {fake.name: run.free_first(fake.name) for fake in FAKES}
    assert [name for name, first in free.items() if first] == ["peft-bd-gated-k4"]
    assert {e.name: e.verify_rows for e in entries_of([run])}["peft-bd-gated-k4"] == 4
