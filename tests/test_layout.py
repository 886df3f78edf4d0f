"""Layouts of the fused pass: tokens and seconds against a chain stepped through by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cost.breakeven import survival_of
from breakeven.cost.curve import CostCurve
from breakeven.cost.layout import Layout, fastest, layouts
from breakeven.cost.profile import read_rates
from breakeven.errors import DataError, RecipeError

rates = st.lists(st.floats(0.05, 0.95), min_size=1, max_size=4)


@st.composite
def curves(draw: st.DrawFn) -> CostCurve:
    steps = draw(st.lists(st.floats(0.0, 0.5), min_size=5, max_size=5))
    return CostCurve.of({w: 1.0 + sum(steps[:i]) for i, w in enumerate((1, 2, 4, 8, 16))})


def stepped(own: list[float], layout: Layout, curve: CostCurve) -> tuple[float, float]:
    """Mean tokens and seconds of a round, round after round and outcome after outcome."""
    waiting = {0: 1.0}  # how many drafts the last round left -> probability
    tokens = seconds = 0.0
    for number in range(400):
        after: dict[int, float] = {}
        for drafts, chance in waiting.items():
            present = min(drafts + 1, layout.groups)
            for accepted in range(drafts + 1):
                right = 1.0
                for rate in own[:accepted]:
                    right *= rate
                if accepted < drafts:
                    right *= 1.0 - own[accepted]
                left = min(layout.drafts, layout.masks) if accepted < present else 0
                after[left] = after.get(left, 0.0) + chance * right
                if number >= 200:
                    tokens += chance * right * (accepted + 1)
            if number >= 200:
                seconds += chance * curve.seconds(drafts + 1 + present * layout.masks)
        waiting = after
    return tokens / 200, seconds / 200


@given(rates, curves())
def test_every_layout_is_what_its_rounds_come_to(own: list[float], curve: CostCurve) -> None:
    plain, *found = layouts(own, curve)
    assert (plain.drafts, plain.rows, plain.tokens, plain.seconds) == (0, 1, 1.0, curve.seconds(1))
    n = len(own)
    assert len(found) == sum(k + 1 for m in range(1, n + 1) for k in range(1, m + 1))
    # the periodic part of a chain of two states dies out like s_g, which is at most 0.95 here
    for layout in found[:: max(1, len(found) // 5)]:
        tokens, seconds = stepped(own, layout, curve)
        assert layout.tokens == pytest.approx(tokens, rel=1e-2)
        assert layout.seconds == pytest.approx(seconds, rel=1e-2)


@given(rates, curves())
def test_more_groups_never_earn_less_and_never_cost_fewer_rows(
    own: list[float], curve: CostCurve
) -> None:
    found = {(x.drafts, x.groups, x.masks): x for x in layouts(own, curve)}
    for (k, g, m), layout in found.items():
        more = found.get((k, g + 1, m))
        if g and more:
            assert more.tokens >= layout.tokens
            assert more.rows == layout.rows + m
        if g == k + 1:
            assert layout.tokens == pytest.approx(1 + sum(survival_of(own[:k])))


@given(rates)
def test_rows_for_nothing_are_all_taken(own: list[float]) -> None:
    best = fastest(layouts(own, CostCurve.of({1: 1.0, 2: 1.0})))
    assert (best.drafts, best.groups, best.masks) == (len(own), len(own) + 1, len(own))


@given(rates)
def test_where_a_row_costs_a_step_nothing_rides(own: list[float]) -> None:
    assert str(fastest(layouts(own, CostCurve.of({1: 1.0, 2: 2.0})))) == "plain decoding"


@given(rates, curves())
def test_never_slower_than_plain_and_never_wider_on_a_steeper_curve(
    own: list[float], curve: CostCurve
) -> None:
    best = fastest(layouts(own, curve))
    assert best.speed >= 1.0 / curve.seconds(1)
    assert best.speed == max(x.speed for x in layouts(own, curve))


def test_dearer_rows_leave_fewer_groups() -> None:
    """0.54, 0.48, 0.37 are the shipped adapter's rates."""
    taken = []
    for slope in (0.0, 0.02, 0.05, 0.1, 0.3):
        curve = CostCurve.of({1: 1.0, 2: 1.0 + slope})
        taken.append(fastest(layouts((0.543, 0.479, 0.369), curve)).rows)
    assert taken == sorted(taken, reverse=True)
    assert taken[0] == 16
    assert taken[-1] == 1
    assert len(set(taken)) > 2


def test_a_given_number_of_masks_is_kept() -> None:
    curve = CostCurve.of({1: 1.0, 2: 1.01})
    assert {x.masks for x in layouts((0.5, 0.4, 0.3), curve, masks=2)} == {0, 2}
    assert max(x.drafts for x in layouts((0.5,), curve, masks=3)) == 1


def profile(path: Path, width: int | None, rates: list[float]) -> Path:
    conditions = {} if width is None else {"verify_width": width}
    tree = {
        "num_speculative_tokens": 3,
        "conditional_accept_rates": rates,
        "measurement_conditions": conditions,
    }
    path.write_text(json.dumps(tree))
    return path


def test_rates_are_those_of_the_guesses(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    assert read_rates(profile(file, 3, [1.0, 0.5, 0.4])) == (0.5, 0.4)
    assert read_rates(profile(file, 4, [0.6, 0.5, 0.4])) == (0.6, 0.5, 0.4)
    assert read_rates(profile(file, None, [0.6, 0.5, 0.4])) == (0.6, 0.5, 0.4)
    with pytest.raises(RecipeError, match=r"1\.5 is not a probability"):
        read_rates(profile(file, 4, [1.5]))
    with pytest.raises(DataError, match="beyond the free first token"):
        read_rates(profile(file, 3, [1.0]))
    with pytest.raises(DataError, match="no such file"):
        read_rates(tmp_path / "none.json")
