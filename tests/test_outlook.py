"""What other draft lengths would bring, computed from a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.cli.app import run as main
from breakeven.cost.breakeven import RoundCost
from breakeven.cost.curve import CostCurve
from breakeven.cost.levelling import through
from breakeven.measure.performance import Performance
from breakeven.measure.results import write_csv
from breakeven.measure.wording import outlook, speed
from breakeven.report.outlook import Outlook, outlooks
from breakeven.report.run import Run, load_run
from fake_run import write_run

CURVE = CostCurve.of({1: 0.020, 2: 0.0206, 3: 0.0212, 4: 0.0218, 5: 0.030, 9: 0.026})
"""A short, noisy curve: five rows were disturbed."""


def run_with(folder: Path, drafted: dict[int, int] | None, **prices: float) -> Run:
    """``x-k4`` that accepted 0.3, 0.2, 0.15, 0.1; ``drafted``: how many rounds had so many."""
    counts = drafted or {4: 100}
    rounds = sum(counts.values())
    given = {"c_d": 0.1, "c_v": 1.07, "c_s": 0.03, **prices}
    need = sum(given.values())
    row = {"config": "x-k4", "category": "all", "tokens_per_s": 1.7 / need, "ratio": 1.7 / need}
    plain = {"config": "ar", "category": "all", "tokens_per_s": 1.0, "ratio": 1.0, "c_v": 0.97}
    survival = {f"survival_{i}": s for i, s in enumerate((0.3, 0.2, 0.15, 0.1), start=1)}
    made = sum(d * n for d, n in counts.items())
    folder.mkdir()
    CURVE.write(folder / "cost_curve.csv")
    write_csv(
        folder / "performance.csv",
        [plain, {**row, **given, "break_even": need, "acceptance_length": 1.7}],
    )
    write_csv(
        folder / "acceptance.csv",
        [{"config": "x-k4", "category": "all", "rounds": rounds, "drafted": made, **survival}],
    )
    if drafted:
        histogram = [drafted.get(d, 0) for d in range(5)]
        request = {"config": "x-k4", "id": "p", "drafted_histogram": histogram}
        (folder / "requests.jsonl").write_text(json.dumps(request) + "\n")
    return load_run(folder)


ROUNDS = (None, {4: 100}, {0: 55, 1: 2, 2: 1, 3: 2, 4: 40}, {0: 97, 4: 3}, {0: 100})


@pytest.mark.parametrize("drafted", ROUNDS)
@pytest.mark.parametrize("c_v", [0.6, 0.99, 1.07, 2.5])
def test_the_model_starts_from_what_the_rounds_measured(
    tmp_path: Path, drafted: dict[int, int] | None, c_v: float
) -> None:
    """At its own K the model says what was measured; nothing better makes it slower."""
    [look] = outlooks(run_with(tmp_path / "run", drafted, c_v=c_v))
    ladder = look.ladder
    assert ladder is not None
    own = ladder.rungs[4]
    assert own.cost.verify == pytest.approx(c_v)
    assert own.committed == pytest.approx(1.7)  # 1.75 before the ends of answers
    assert own.speed == pytest.approx(look.speed)
    more = [ladder.accepting(m).best.speed for m in (0.0, 0.01, 0.05, 0.2, 1.0)]
    assert more == sorted(more)
    cheaper = [ladder.drafting(times).best.speed for times in (1.0, 0.7, 0.1, 0.0)]
    assert cheaper == sorted(cheaper)
    assert min(more[0], cheaper[0]) >= look.speed * (1 - 1e-9)
    costs = [rung.cost.break_even for rung in ladder.rungs[1:]]
    assert all(cost > 0 for cost in costs)


def test_every_configuration_of_a_run_is_reproduced(tmp_path: Path) -> None:
    """Free first tokens, one draft after another, masks aboard: all start where they are."""
    run = load_run(write_run(tmp_path / "run"))
    for look in outlooks(run):
        assert look.ladder is not None
        assert look.ladder.rungs[-1].speed == pytest.approx(look.speed)


def test_a_disturbed_width_of_the_curve_makes_no_more_acceptance_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a newcomer saw: now 1.35×, with more acceptance 1.30×."""
    run_with(tmp_path / "run", {0: 53, 1: 3, 2: 1, 3: 2, 4: 41})
    assert main(["oracle", str(tmp_path / "run"), "--more-acceptance", "0.05", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    said = {line["question"]: line for line in lines}
    now = said["Now"]["value"]  # plain decoding makes 1 token/s
    assert now == pytest.approx(1.7 / 1.2)
    best = float(said["Best draft length"]["meaning"].split()[1].rstrip("×"))
    assert best >= round(now, 2)
    assert said["If 5 more of 100 drafts held at each position"]["value"] > now


def test_no_acceptance_exceeds_what_is_drafted(tmp_path: Path) -> None:
    [look] = outlooks(run_with(tmp_path / "run", {0: 60, 2: 10, 4: 30}))
    assert look.ladder is not None
    assert look.ladder.accepting(1.0).survival == pytest.approx((0.4, 0.4, 0.3, 0.3))


@given(
    shares=st.dictionaries(st.integers(1, 12), st.floats(0.01, 1.0), min_size=1),
    price=st.floats(0.1, 9.0),
    one=st.floats(0.1, 1.0),
)
def test_a_levelled_curve_goes_through_the_mean_price(
    shares: dict[int, float], price: float, one: float
) -> None:
    whole = sum(shares.values())
    widths = {rows: share / whole for rows, share in shares.items()}
    level = through(CURVE, widths, price, one)
    mean = sum(share * level.seconds(rows) for rows, share in widths.items())
    assert mean == pytest.approx(price)
    assert min(level.seconds(rows) for rows in widths) >= min(one, price) * (1 - 1e-9)


@pytest.mark.parametrize("verify", [0.9, 1.0, 1.4])
def test_bench_and_oracle_agree_on_a_verify_pass_at_the_price_of_a_plain_step(
    verify: float,
) -> None:
    """A pass cheaper than a plain step, which includes time outside its pass, stays so in both."""
    look = Outlook("x-k2", 2, RoundCost(0.4, verify, 0.1), committed=2.0, plain=50.0)
    ratio = look.oracle.at_plain_price(with_other=True) / 50.0
    assert ratio == pytest.approx(2.0 / (0.4 + min(verify, 1.0) + 0.1))
    row = Performance("x-k2", "all", 1, 1, 1, 1, 1, 0.4, verify, 0.1, 0.5 + verify, 2.0, 1, 0.1, 9)
    both = 2.0 / (min(verify, 1.0) + 0.1)
    assert f"at the price of a plain step {speed(ratio, beside=both)}" in outlook(row)
