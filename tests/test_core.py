"""The vocabulary and the ledger add up (T24): income, purchases and time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.core import Draft, Pass, Phase, Round, Verified
from breakeven.cost.ledger import Ledger

OUTCOMES = st.integers(0, 16).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k)))
"""(drafted, accepted) of a round."""


def bought(phase: Phase, seconds: float) -> Pass:
    return Pass(phase, rows=1, batch=1, context=0, seconds=seconds)


def a_ledger(outcomes: list[tuple[int, int]]) -> Ledger:
    """One draft and one verify pass per round, nothing truncated."""
    ledger = Ledger()
    for drafted, accepted in outcomes:
        ledger.passes += [bought(Phase.DRAFT, 1.0), bought(Phase.VERIFY, 2.0)]
        ledger.rounds.append(Round("r", drafted, accepted, accepted + 1))
    return ledger


@given(st.lists(OUTCOMES, min_size=1, max_size=30))
def test_acceptance_length_is_one_plus_accepted_per_verify_pass(
    outcomes: list[tuple[int, int]],
) -> None:
    ledger = a_ledger(outcomes)
    steps = ledger.count(Phase.VERIFY)
    assert ledger.committed == steps + ledger.accepted
    assert ledger.committed / steps == pytest.approx(1 + ledger.accepted / steps)
    assert ledger.accepted <= ledger.drafted == sum(k for k, _ in outcomes)


def test_truncation_lowers_income_and_not_acceptance() -> None:
    ledger = Ledger(rounds=[Round("r", drafted=4, accepted=4, committed=2)])
    assert (ledger.accepted, ledger.committed) == (4, 2)


def test_seconds_are_kept_by_phase_and_the_rest_is_other() -> None:
    ledger = Ledger(
        [bought(Phase.PREFILL, 0.5), bought(Phase.DRAFT, 1.0), bought(Phase.VERIFY, 2.0)],
        wall_s=4.0,
    )
    assert [ledger.seconds(phase) for phase in Phase] == [0.5, 0, 1.0, 2.0]
    assert ledger.other_s == pytest.approx(0.5)


def test_other_time_is_never_negative() -> None:
    assert Ledger([bought(Phase.PLAIN, 1.0)]).other_s == 0.0


def test_a_bought_pass_is_entered_with_its_time() -> None:
    ledger = Ledger()
    with (
        ledger.open(),
        ledger.buy(Phase.VERIFY, rows=5, batch=2, context=7, mode="eager", model="v"),
    ):
        time.sleep(0.01)
    (entry,) = ledger.passes
    assert (entry.rows, entry.batch, entry.context, entry.mode, entry.model) == (
        5,
        2,
        7,
        "eager",
        "v",
    )
    assert 0.01 <= entry.seconds <= ledger.wall_s


def test_a_failed_pass_is_no_purchase_but_its_time_is_wall_time() -> None:
    ledger = Ledger()
    with (
        pytest.raises(ZeroDivisionError),
        ledger.open(),
        ledger.buy(Phase.PLAIN, rows=1, batch=1, context=0, mode="eager", model="v"),
    ):
        raise ZeroDivisionError
    assert ledger.passes == []
    assert ledger.wall_s > 0


@given(OUTCOMES, st.integers(0, 99))
def test_a_round_commits_what_was_accepted_and_one_more(
    outcome: tuple[int, int], token: int
) -> None:
    drafted, accepted = outcome
    verified = Verified(Draft(tuple(range(drafted))), accepted, token)
    assert verified.tokens == (*range(accepted), token)
    assert verified.committed == len(verified.tokens)


@pytest.mark.parametrize("accepted", [-1, 3])
def test_no_more_can_be_accepted_than_drafted(accepted: int) -> None:
    with pytest.raises(AssertionError):
        Verified(Draft((1, 2)), accepted, 3)


def test_a_free_token_cannot_be_rejected() -> None:
    assert Draft((5, 6), free=1).guesses == (6,)
    with pytest.raises(AssertionError):
        Verified(Draft((5, 6), free=1), accepted=0, token=9)
    with pytest.raises(AssertionError):
        Draft((), free=1)


def test_a_clipped_draft_keeps_its_free_token() -> None:
    assert Draft((5, 6, 7), free=1).clipped(2) == Draft((5, 6), free=1)
    assert Draft((5,)).clipped(4) == Draft((5,))
