"""Earnings and price of a round, against brute force."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cost.breakeven import (
    RoundCost,
    alpha_for,
    best_k,
    block,
    checked_survival,
    conditional_of,
    constant_alpha,
    expected_committed,
    options,
    sequential,
    survival_of,
    verify_price,
)
from breakeven.cost.curve import CostCurve
from breakeven.errors import RecipeError

rates = st.lists(st.floats(0.0, 1.0), max_size=16)
prices = st.floats(0.0, 5.0)


@given(rates, st.data())
def test_more_survival_never_commits_less(rate: list[float], data: st.DataObject) -> None:
    better = [data.draw(st.floats(r, 1.0)) for r in rate]
    assert expected_committed(survival_of(better)) >= expected_committed(survival_of(rate))
    assert 1.0 <= expected_committed(survival_of(rate)) <= len(rate) + 1


@given(st.lists(st.floats(0.01, 1.0), max_size=8))
def test_conditional_and_survival_are_inverse(rate: list[float]) -> None:
    assert conditional_of(survival_of(rate)) == pytest.approx(tuple(rate))


@given(st.floats(0.0, 1.0), st.integers(1, 16))
def test_alpha_is_found_again(alpha: float, k: int) -> None:
    committed = expected_committed(constant_alpha(alpha, k))
    again = expected_committed(constant_alpha(alpha_for(committed, k), k))
    assert again == pytest.approx(committed)


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.5, (1.88, 1.99, 2.00)),
        (0.653, (2.36, 2.79, 2.88)),
        (0.8, (2.95, 4.16, 4.89)),
        (0.9, (3.44, 5.70, 8.33)),
    ],
)
def test_published_table_of_constant_alpha(alpha: float, expected: tuple[float, ...]) -> None:
    committed = [expected_committed(constant_alpha(alpha, k)) for k in (3, 7, 16)]
    assert committed == pytest.approx(expected, abs=0.006)


@given(rates, prices, prices, st.floats(0.0, 1.0), st.integers(0, 1), st.booleans())
def test_best_k_is_the_maximum(
    rate: list[float], draft: float, slope: float, other: float, free: int, one_by_one: bool
) -> None:
    survival = survival_of(rate)
    curve = CostCurve.of({1: 1.0, 17: 1.0 + slope})
    price = sequential(draft) if one_by_one else block(draft)
    best = best_k(survival, price, verify_price(curve, free=free), other=other)

    def speed(k: int) -> float:
        if k == 0:
            return 1.0
        drafting = draft * k if one_by_one else draft
        rows = k + 1 - free
        return (1 + sum(survival[:k])) / (drafting + 1 + slope * (rows - 1) / 16 + other)

    speeds = [speed(k) for k in range(len(survival) + 1)]
    assert best.speed == pytest.approx(max(speeds))
    assert best.speed >= 1.0
    assert speeds[best.k] == pytest.approx(best.speed)


@given(rates, st.floats(0.01, 2.0), prices)
def test_marginal_rule_agrees_on_even_curves(rate: list[float], draft: float, slope: float) -> None:
    """With rising costs and falling survival, gain > speed holds exactly up to the best K."""
    verify = verify_price(CostCurve.of({1: 1.0, 17: 1.0 + slope}))
    ladder = options(survival_of(rate), sequential(draft), verify)
    best = max(ladder, key=lambda option: option.speed)
    for before, option in pairwise(ladder):
        if option.gain > before.speed * (1 + 1e-9):
            assert option.k <= best.k
        elif option.gain < before.speed * (1 - 1e-9):
            assert option.k > best.k


def test_a_free_first_token_is_never_worse_than_plain_at_flat_cost() -> None:
    curve = CostCurve.of({1: 1.0, 8: 1.0})
    hopeless = best_k([1.0, 0.0, 0.0], block(1.0), verify_price(curve, free=1))
    assert hopeless.speed == pytest.approx(1.0)


def test_uneven_curve_is_not_a_trap() -> None:
    """Six rows dearer than eight: the first position does not gain, the best K is beyond it."""
    curve = CostCurve.of({1: 1.0, 2: 2.5, 3: 1.2})
    assert best_k([0.9, 0.8], sequential(0.0), verify_price(curve)).k == 2


@pytest.mark.parametrize("values", [[1.2], [-0.1], [0.5, 0.6], [float("nan")]])
def test_impossible_survival_is_refused(values: list[float]) -> None:
    with pytest.raises(RecipeError, match="survival"):
        checked_survival(values)


@pytest.mark.parametrize("cost", [(-1.0, 1.0, 0.0), (0.0, 0.0, 0.0), (float("inf"), 1.0, 0.0)])
def test_impossible_costs_are_refused(cost: tuple[float, float, float]) -> None:
    with pytest.raises(RecipeError):
        RoundCost(*cost)
