"""The paper's figures, from its constants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cost.oracle import PAPER, Oracle, RoundTime
from breakeven.errors import RecipeError

parts = st.floats(0.0, 10.0)


def test_golden_free_drafting() -> None:
    assert round(PAPER.oracle().throughput(r=1), 3) == PAPER.free_drafting == 67.865


def test_golden_required_lengths() -> None:
    oracle = PAPER.oracle()
    assert round(oracle.required(PAPER.fastmtp, r=1), 2) == 7.98
    assert round(oracle.required(PAPER.plain, r=1), 2) == 18.31
    assert round(oracle.required(PAPER.fastmtp, r=0), 1) == 15.9
    assert round(oracle.required(PAPER.plain, r=0), 1) == 36.5


def test_golden_both_passes_at_the_price_of_a_plain_step() -> None:
    both = PAPER.oracle().at_plain_price(draft_steps=1)
    assert round(both) == 621
    assert round(both / PAPER.plain, 2) == 1.44


def test_constants_agree_with_each_other() -> None:
    """The digit added to rho_d lies between what is printed and what the profile gives."""
    profile = PAPER.draft_forward_s / (PAPER.draft_forward_s + PAPER.verify_forward_s)
    assert round(PAPER.rho_d, 3) == 0.498
    assert 0.498 < PAPER.rho_d < profile
    assert round(PAPER.round_s, 4) == 0.0846
    time = PAPER.oracle().time
    assert time.rho_d + time.rho_v + time.rho_s == pytest.approx(1.0)
    assert 0 < time.rho_s < 0.001


def test_even_free_drafting_cannot_reach_plain_decoding_with_17_rows() -> None:
    assert PAPER.oracle().required(PAPER.plain, r=1) > PAPER.peft_bd_drafts + 1


@given(parts, st.floats(0.001, 10.0), parts, st.floats(1.0, 17.0), st.floats(0.0, 1.0))
def test_required_length_reaches_its_target(
    draft: float, verify: float, other: float, committed: float, r: float
) -> None:
    oracle = Oracle(committed, RoundTime(draft, verify, other), plain=50.0)
    needed = oracle.required(oracle.throughput(r), r)
    assert needed == pytest.approx(committed)
    assert oracle.throughput(r) >= oracle.throughput(0) * (1 - 1e-12)
    time = oracle.time
    assert time.rho_d + time.rho_v + time.rho_s == pytest.approx(1.0)


@given(st.floats(0.001, 0.1), st.floats(1.0, 17.0))
def test_plain_price_of_one_token_a_round_is_half_the_speed(step: float, committed: float) -> None:
    oracle = Oracle(committed, RoundTime(step, step), plain=1 / step)
    assert oracle.at_plain_price(1) / oracle.plain == pytest.approx(committed / 2)
    assert oracle.at_plain_price() == pytest.approx(oracle.at_plain_price(1))


@pytest.mark.parametrize("bad", [(-1.0, 1.0), (0.0, 0.0)])
def test_impossible_rounds_are_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(RecipeError, match="negative"):
        RoundTime(*bad)


def test_impossible_r_and_length_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"r = 1\.5"):
        RoundTime(1, 1).seconds(1.5)
    with pytest.raises(RecipeError, match="at least 1"):
        Oracle(0.5, RoundTime(1, 1), 10)
