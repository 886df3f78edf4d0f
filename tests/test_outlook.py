"""What other draft lengths would bring, computed from a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from breakeven.cost.breakeven import RoundCost
from breakeven.measure.performance import Performance
from breakeven.measure.wording import outlook, speed
from breakeven.report.outlook import Outlook, _ladder
from breakeven.report.records import Acceptance


def run_of(curve: dict[int, float]) -> Any:
    return SimpleNamespace(
        curve=SimpleNamespace(relative=lambda rows, context: curve[rows]),
        settings=lambda config: {},
        free_first=lambda config: False,
    )


@pytest.mark.parametrize(("drafted", "price"), [(400, 1.5 / 1.8), (100, 1.5)])
def test_a_verify_price_belongs_to_the_drafts_that_were_made(drafted: int, price: float) -> None:
    run = run_of({2: 1.0, 3: 1.2, 4: 1.5, 5: 1.8})
    acceptance = Acceptance(
        config="x", category="all", rounds=100, drafted=drafted, survival=(0.9, 0.8, 0.7, 0.6)
    )
    ladder = _ladder(run, "x", RoundCost(0.0, 1.0, 0.0), acceptance)
    assert ladder is not None
    best = ladder.best
    assert best.k == 3
    assert best.cost.verify == pytest.approx(price)  # 4 made each time, or 1


@pytest.mark.parametrize("verify", [0.9, 1.0, 1.4])
def test_bench_and_oracle_agree_on_a_verify_pass_at_the_price_of_a_plain_step(
    verify: float,
) -> None:
    """A pass cheaper than a plain step, which includes time outside its pass, stays so in both."""
    look = Outlook("x-k2", 2, RoundCost(0.4, verify, 0.1), committed=2.0, plain=50.0)
    ratio = look.oracle.at_plain_price(with_other=True) / 50.0
    assert ratio == pytest.approx(2.0 / (0.4 + min(verify, 1.0) + 0.1))
    row = Performance("x-k2", "all", 1, 1, 1, 1, 1, 0.4, verify, 0.1, 0.5 + verify, 2.0, 1, 0.1, 9)
    assert f"at the price of a plain step {speed(ratio)}" in outlook(row)
