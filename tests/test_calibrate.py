"""Calibration on a tiny model: what is measured, what is predicted, what a person sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.cli.app import run
from breakeven.cost.breakeven import expected_committed
from breakeven.cost.calibration import Calibration, DraftPrice
from breakeven.cost.curve import CostCurve, Point
from breakeven.cost.levelling import levelled
from breakeven.cost.truncation import committed_distribution, expected_price
from breakeven.decode.policy.named import policy_named
from breakeven.drafters.ngram import NGram
from breakeven.drafters.registry import METHODS, untrained
from breakeven.drafters.scripted import Dressed, Oracle, Synthetic
from breakeven.errors import DataError, RecipeError
from breakeven.measure.calibration.acceptance import Acceptance, read_acceptance
from breakeven.measure.calibration.check import TARGET, Checked, answers_beside, predict, summary
from breakeven.measure.calibration.elsewhere import commands
from breakeven.measure.calibration.pace import paces
from breakeven.measure.calibration.plan import CalibrationPlan, numbers
from breakeven.measure.calibration.prices import prices_for
from breakeven.measure.calibration.rounds import measure_rounds
from breakeven.measure.calibration.run import calibrate
from breakeven.measure.calibration.tables import rate_needed, sentences
from breakeven.measure.calibration.together import FEWEST, SideBySide
from breakeven.measure.calibration.walkers import walkers_of
from breakeven.measure.trial import Decoding, Method
from breakeven.report.calibrated import calibrated_lines
from breakeven.report.calibration import render
from breakeven.report.charts.foretold import foretold_chart
from breakeven.report.charts.frame import NARROW, WIDE
from breakeven.report.charts.need import need_chart
from breakeven.report.entries import Mark
from measuring import Wrapped, loaded, prompts, script_of
from test_calibration import calibration
from tiny import tiny_verifier

SMALL = CalibrationPlan(
    drafters=("ngram", "peft-bd-gated", "fastmtp"), widths=(1, 2, 4), contexts=(4, 8),
    batches=(1, 2), lengths=(1, 3), base=8, minutes=0.001,
)  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> Calibration:
    found, checked = calibrate(
        loaded(), SMALL, others={"eager": tiny_verifier}, command="breakeven x"
    )
    assert checked == [], "no acceptance was asked for"
    return found


def test_everything_of_the_plan_is_measured(measured: Calibration) -> None:
    row = measured.row()
    assert row["widths"] == [1, 2, 3, 4], "3 in rounds of peft-bd-gated"
    assert row["contexts"] == [4, 8]
    assert row["batches"] == [1, 2]
    assert set(row["other_modes"]["eager"]["1"]["8"]) == {"1", "2", "4"}
    assert set(row["drafters"]) == {"ngram", "peft-bd-gated", "fastmtp"}
    assert measured.draft_lengths("fastmtp") == (1, 3)
    assert measured.draft_lengths("peft-bd-gated") == (3,), "K = 1 would only be the free token"
    assert measured.verify_rows("peft-bd-gated", 3) == 3
    assert measured.verify_rows("fastmtp", 3) == 4


def test_prices_are_of_the_right_kind(measured: Calibration) -> None:
    assert measured.draft_seconds("ngram", 3) == 0, "looking up buys no pass"
    assert measured.outside("ngram", 3) > 0
    assert measured.draft_seconds("peft-bd-gated", 3) > 0
    for name in ("fastmtp", "peft-bd-gated"):
        assert measured.draft_seconds(name, 3, batch=2) > 0
    assert measured.step_seconds > 0


def test_what_is_aboard_the_verify_pass_is_part_of_the_drafters_price() -> None:
    plan = CalibrationPlan(
        drafters=("peft-bd-fused", "early-exit"), widths=(1, 2, 4), contexts=(8,), batches=(1, 2),
        lengths=(1, 3), base=16, minutes=0.001,
    )  # fmt: skip
    found, _ = calibrate(loaded(tiny_verifier(vocab=64, layers=4)), plan)
    for name in plan.drafters:
        assert found.draft_lengths(name) == (1, 3)
        assert found.verify_rows(name, 3) == 4, "what the drafts alone would take"
        assert found.draft_seconds(name, 3) > 0
        assert found.draft_seconds(name, 3, batch=2) > 0
    walkers, skipped = walkers_of(tiny_verifier(vocab=64, layers=4), plan)
    assert skipped == ()
    rows = {}
    for w in walkers:
        w.step()
        w.step()
        rows[w.key] = w.rows
    assert rows["peft-bd-fused", 3, 1] == 4 + 4 * 3, "a group of masks for each outcome"
    assert rows["early-exit", 3, 1] == rows["nothing", 3, 1] == 4
    assert rows["nothing", 3, 2] == 4, "free drafts verify in every batch and width"


def test_a_busy_machine_is_told_once_and_of_the_worst_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cores = iter([0.2, 1.5, 0.7])

    class Busy:
        @property
        def cores(self) -> float:
            return next(cores)

    place = "breakeven.measure.calibration.run."
    monkeypatch.setattr(place + "Neighbours", Busy)
    monkeypatch.setattr(place + "busy_now", lambda: "busy at first")
    monkeypatch.setattr(place + "disturbed", lambda others: f"others: {others}")
    plan = replace(SMALL, drafters=("ngram",), lengths=(1,))
    found, _ = calibrate(loaded(), plan, others={"eager": tiny_verifier})
    assert [doubt for doubt in found.warnings if "others" in doubt] == ["others: 1.5"]
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert told == ["warning: busy at first"], "while one can still stop it"


def test_a_policy_takes_the_prices_of_this_verifier(measured: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    measured.write(path)
    prices = prices_for(loaded(), path)
    assert prices == measured
    policy = policy_named("adaptive", 3, prices)
    decoding = Decoding(loaded().verifier, loaded().eos, 12)
    method = Method("ngram-adaptive", NGram(), 3, policy)
    plain, _ = decoding.run(Method(), prompts()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("breakeven.decode.policy.adaptive.quick_curve", None)  # not asked for
        drafted, _ = decoding.run(method, prompts()[0])
    assert drafted.tokens == plain.tokens


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verifier": {"name": "x", "weights_sha256": "other"}}, "its verifier is other"),
        ({"mode": "graph"}, "its mode is graph, here it is eager"),
        ({"threads": 99}, "its threads is 99"),
        ({"dtype": "bfloat16"}, "its dtype is bfloat16, here it is float64"),
        ({"machine": {"cpu": "Z80"}}, "its processor is Z80"),
    ],
)
def test_prices_of_something_else_are_refused(
    measured: Calibration, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "calibration.json"
    replace(measured, **change).write(path)
    with pytest.raises(DataError, match=f"{said}.*breakeven calibrate"):
        prices_for(loaded(), path)


def test_curves_are_levelled_to_the_verify_passes_of_the_rounds() -> None:
    points = {1: 0.03, 2: 0.033, 4: 0.036, 8: 0.06}
    curves = {
        1: CostCurve(tuple(
            Point(c, w, more * s, more * s, more * s)
            for c, more in ((8, 1.0), (64, 1.5)) for w, s in points.items()
        )),
        2: CostCurve.of({1: 0.04}, 8),
    }  # fmt: skip
    seen = {1: CostCurve.of({1: 0.02, 2: 0.022, 4: 0.030}, 8)}
    level = levelled(curves, base=8, seen=seen)
    assert level[1].seconds(1, 8) == pytest.approx(0.02)
    assert level[1].seconds(4, 8) == pytest.approx(0.030), "a width that rounds verified"
    assert level[1].seconds(4, 64) == pytest.approx(0.045), "the same factor behind more tokens"
    assert level[1].seconds(8, 8) == pytest.approx(0.04), "another width: the middle factor, 2/3"
    assert level[2].seconds(1) == pytest.approx(0.04 * 2 / 3)


def test_a_drafter_that_reads_the_prompt_itself_has_a_start(measured: Calibration) -> None:
    assert measured.start("ngram", 3, 8) == 0
    assert measured.start("peft-bd-gated", 3, 8) == 0, "it lives in the verifier's cache"
    own = CalibrationPlan(
        drafters=("peft-bd",), widths=(1, 2), contexts=(8,), batches=(1,), lengths=(1, 2),
        base=8, minutes=0.001,
    )  # fmt: skip
    found, _ = calibrate(loaded(), own)
    assert found.start("peft-bd", 2, 8) > 0
    assert found.start("peft-bd", 2, 4) == pytest.approx(found.start("peft-bd", 2, 8) / 2)
    short, long = (predict(found, "peft-bd", 2, (0.5, 0.25), n, 8) for n in (4, 400))
    assert short < long, "a long answer pays for the start more easily"


def test_prompts_that_the_verifier_read_one_by_one_are_not_the_drafters_start() -> None:
    plan = CalibrationPlan(
        drafters=("ngram", "peft-bd"), widths=(1, 2), contexts=(128,), batches=(1, 2), lengths=(2,),
        base=128, minutes=0.001,
    )  # fmt: skip
    walkers, _ = walkers_of(tiny_verifier(), plan)
    starts = {w.name: w.starts[0] for w in walkers if w.batch == 2}
    assert starts["ngram"] == starts["ar"] == 0.0
    assert starts["peft-bd"] > 0.0, "it reads the prompts through its adapter"


def test_contexts_and_widths_fit_the_model() -> None:
    shape = tiny_verifier(max_position_embeddings=40).shape
    plan = CalibrationPlan(drafters=(), widths=(1, 8), lengths=(1, 2)).within(shape)
    assert max(plan.contexts) == 32
    assert plan.base == 16
    with pytest.raises(RecipeError, match="40 positions"):
        CalibrationPlan(drafters=()).within(shape)
    with pytest.raises(RecipeError, match="K up to 30"):
        CalibrationPlan(drafters=(), widths=(1,), lengths=(30,)).within(shape)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"widths": (2, 4)}, "1 has to be"),
        ({"lengths": (0,)}, "k 0: give whole numbers from 1 on"),
        ({"minutes": 0}, "more than 0"),
        ({"minutes": float("inf")}, "more than 0"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        CalibrationPlan(drafters=(), **change)
    with pytest.raises(RecipeError, match="whole numbers"):
        numbers("--widths", "1,b")


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_an_untrained_form_to_price(name: str) -> None:
    assert untrained(name, tiny_verifier(), 2) is not None


def test_scripted_drafts_give_the_asked_acceptance_at_any_price() -> None:
    rows, asked = prompts(3), Acceptance((0.8, 0.5))
    decoding = Decoding(tiny_verifier(vocab=64), frozenset(), 200)
    script = script_of(decoding, rows)
    for worker in (None, "ngram", "peft-bd-gated", "fastmtp", "peft-bd-fused", "early-exit"):
        own = untrained(worker, decoding.verifier, 3) if worker else None
        free = own.free if own else 0
        tokens = Synthetic(script, 64, asked.conditional(3, free))
        drafter = Dressed(own, tokens) if own else tokens
        rounds = []
        for row in rows:
            completion, ledger = decoding.run(Method("x", drafter, 3), row)
            assert completion.tokens == list(script[tuple(row.prompt_ids)]), "still exact"
            rounds += [r for r in ledger.rounds if r.drafted == 3]
        made = 1 + sum(r.accepted for r in rounds) / len(rounds)
        wanted = expected_committed(asked.survival(3, free))
        assert made == pytest.approx(wanted, abs=0.08), worker


def test_the_distribution_of_a_round_adds_up() -> None:
    survival = (0.8, 0.4, 0.3)
    chances = committed_distribution(survival)
    assert sum(chances) == pytest.approx(1)
    mean = sum(n * p for n, p in enumerate(chances, start=1))
    assert mean == pytest.approx(expected_committed(survival))
    assert expected_price(survival, 5000, lambda drafts: 1.0) == pytest.approx(
        5000 / mean, rel=1e-3
    )
    assert expected_price(survival, 10, lambda drafts: 1.0) > 10 / mean, "the last round is cut"


def test_the_prediction_is_income_over_price() -> None:
    made = calibration()
    survival = (1.0, 0.5, 0.25, 0.125)
    price = made.round_cost("gated", 4).break_even
    long = predict(made, "gated", 4, survival, 20_000)
    assert long == pytest.approx(expected_committed(survival) / price, rel=1e-3)
    free = predict(made, None, 3, (0.5, 0.25, 0.125), 20_000)
    assert free == pytest.approx(1.875 / ((0.022 + 0.0015) / 0.021), rel=1e-3)


def test_the_check_decodes_every_drafter_beside_the_rounds() -> None:
    found, checked = calibrate(loaded(), replace(SMALL, base=16, acceptance=Acceptance((0.8,))))
    assert [c.config for c in checked] == [
        "nothing-k1", "nothing-k3", "ngram-k1", "ngram-k3", "peft-bd-gated-k3",
        "fastmtp-k1", "fastmtp-k3",
    ]  # fmt: skip
    assert all(c.predicted > 0 and c.measured > 0 for c in checked)
    free = next(c for c in checked if c.config == "peft-bd-gated-k3")
    assert free.committed == pytest.approx(1 + 1 + 0.8 + 0.64)
    assert free.measured_committed == pytest.approx(free.committed, abs=0.3)
    same = predict(found, "peft-bd-gated", 3, (1.0, 0.8, 0.64), 95, 1)
    assert free.predicted == pytest.approx(same)


def test_rounds_and_answers_take_turns() -> None:
    """While prices are taken, the check's answers get on as far as the rounds have got."""
    plan = replace(SMALL, base=16, drafters=("ngram",), acceptance=Acceptance((0.5,)))
    verifier = tiny_verifier(vocab=64)
    answers = answers_beside(verifier, plan, Acceptance((0.5,)), seconds=0.0, tokens=10)
    of_one = 9 * len(answers.methods)
    seen: list[tuple[float, float]] = []

    def beside(share: float) -> None:
        answers.advance(share)
        seen.append((share, answers.made / (FEWEST * of_one)))

    measure_rounds(verifier, plan, 0.01, beside)
    assert len(seen) > 20
    assert all(share <= made <= share + 4 / of_one for share, made in seen)
    assert [len(own) for own in answers.answers.values()] == [FEWEST] * len(answers.methods)


def test_the_line_under_the_check_counts() -> None:
    near, far = Checked("a", 1, 2, 2, 1.04, 1.0), Checked("b", 1, 2, 2, 1.06, 1.0)
    assert TARGET == 0.05
    assert [near.good, far.good] == [True, False]
    assert near.error == pytest.approx(0.04)
    assert summary([near] * 9 + [far]).endswith("9 of 10 configurations (target: 9 of 10, met)")
    assert "missed" in summary([near, far])


def test_acceptance_from_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "speculation_profile.json"
    profile: dict[str, Any] = {
        "num_speculative_tokens": 3, "conditional_accept_rates": [1.0, 0.5, 0.25],
        "measurement_conditions": {"verify_width": 3},
    }  # fmt: skip
    file.write_text(json.dumps(profile))
    assert read_acceptance(str(file)).rates == (0.5, 0.25), "without the free first token"
    profile["measurement_conditions"]["verify_width"] = 4
    file.write_text(json.dumps(profile))
    assert read_acceptance(str(file)).rates == (1.0, 0.5, 0.25)
    assert read_acceptance(str(tmp_path)) == read_acceptance(str(file)), "its folder will do"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [("0.5,x", RecipeError, "conditional rates"), ("", RecipeError, "conditional"),
     ("1.5", RecipeError, "not a probability"),
     ("none.json", DataError, "no such file")],
)  # fmt: skip
def test_bad_acceptance(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        read_acceptance(text)


def test_a_broken_profile_is_named(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text("{}")
    with pytest.raises(DataError, match="conditional_accept_rates"):
        read_acceptance(str(file))


def test_other_engines_get_survival_and_acceptance_length() -> None:
    vllm, sglang = commands("m", [0.8, 0.4])
    config = json.loads(vllm.speculative.split("'")[1])
    assert config["rejection_sample_method"] == "synthetic"
    assert config["synthetic_acceptance_rates"] == [0.8, 0.4]
    assert config["num_speculative_tokens"] == 2
    assert "SGLANG_SIMULATE_ACC_LEN=2.2 " in sglang.speculative
    assert "--speculative-num-draft-tokens 3" in sglang.speculative


def test_the_rate_a_drafter_needs() -> None:
    made = calibration()
    rate = float(rate_needed(made, "gated", 4))  # 3 guesses after the free token
    need = made.round_cost("gated", 4).break_even
    assert 1 + sum(rate**i for i in range(4)) == pytest.approx(need, abs=0.02)
    dear = calibration(drafters={"slow": {1: DraftPrice(2, {1: 0.1}, {1: 0.0})}})
    assert rate_needed(dear, "slow", 1) == "never", "one draft commits at most two tokens"
    assert any("rows cost" in line for line in sentences(made))


def test_what_the_asked_acceptance_would_bring_is_the_first_sentence() -> None:
    made = calibration(drafters={
        "fast": {3: DraftPrice(4, {1: 0.001}, {1: 0.0})},
        "slow": {1: DraftPrice(2, {1: 0.1}, {1: 0.0})},
    })  # fmt: skip
    asked = Acceptance((0.8, 0.5))
    speed = expected_committed(asked.survival(3)) / made.round_cost("fast", 3).break_even
    assert next(sentences(made, asked)) == (
        f"With acceptance 0.8, 0.5 fast, K = 3, makes long answers {speed:.2f} times as fast;"
        " slow would lose at any K."
    )
    assert next(sentences(made, Acceptance((0.0,)))).endswith("0 nothing here would pay.")
    assert next(sentences(made)).startswith("A pass of")


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("k", [1, 4])
def test_the_most_that_k_drafts_commit_is_always_drawn(width: int, k: int) -> None:
    """Also where drafts are so cheap that the axis could end below it."""
    chart = need_chart(
        calibration(drafters={"cheap": {k: DraftPrice(k + 1, {1: 0.0}, {1: 0.0})}}), width
    )
    assert chart is not None
    (x0, y0), (x1, y1) = chart.most
    frame = chart.frame
    assert frame.left <= x0 < x1 <= frame.right
    assert frame.top <= y1 < y0 < chart.one
    assert x1 - x0 > (frame.right - frame.left) / 5


def test_predictions_within_the_target_lie_in_the_band() -> None:
    marks = {"a": Mark.number(0)}
    checked = [Checked("a-k1", 1, 2, 2, 1.0, 1.0), Checked("a-k2", 2, 2, 2, 2.1, 2.0)]
    for width in (WIDE, NARROW):
        chart = foretold_chart(checked, marks, width)
        frame = chart.frame
        corners = [tuple(map(float, point.split(","))) for point in chart.band.split()]
        assert all(frame.left <= x <= frame.right for x, _ in corners)
        assert all(frame.top <= y <= frame.bottom for _, y in corners)
        [(x0, y0), (x1, y1)] = corners[3:5][::-1]  # the edge of predictions 5 % too high
        at = chart.points[1]
        edge = y0 + (at.x - x0) / (x1 - x0) * (y1 - y0)
        assert at.y == pytest.approx(edge, abs=0.3), "2.1 foretold for 2.0 is just on it"
        assert chart.points[0].title == "a-k1: predicted 1.00×, measured 1.00×"


def test_the_page_is_whole_and_loads_nothing(measured: Calibration) -> None:
    checked = [Checked("fastmtp-k3", 3, 2.2, 2.2, 1.3, 1.25)]
    page = render(measured, Acceptance((0.8,)), checked)
    assert "fastmtp, K = 3: needs" in page
    assert "within 5 % of measured in 1 of 1" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert 'download="calibration.json"' in page


def test_dry_run_loads_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["calibrate", "absent/model", "--dry-run", "--out", str(tmp_path / "x")]
    assert run(words) == 0
    assert "fastmtp" in capsys.readouterr().out
    assert not (tmp_path / "x").exists()
    assert run([*words, "--json"]) == 0
    intended = json.loads(capsys.readouterr().out)
    assert intended["minutes"] == 3.0
    assert [s["stage"] for s in intended["stages"]] == ["passes", "rounds", "modes"]
    assert sum(s["seconds"] for s in intended["stages"]) < 180, "loading takes its share"
    assert run([*words, "--json", "--acceptance", "0.5"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["minutes"] == 6.0
    assert [s["stage"] for s in checked["stages"]] == ["passes", "rounds", "modes"]
    assert "in turn with them answers" in checked["stages"][1]["does"]
    assert checked["stages"][1]["seconds"] > intended["stages"][1]["seconds"]


def test_mistakes_get_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text("{}")
    for words, said in (
        (["--drafter", "fastmpt"], "did you mean 'fastmtp'"),
        (["--widths", "2,4"], "1 has to be among them"),
        (["--acceptance", "a"], "conditional rates"),
        (["--out", str(tmp_path)], "--force"),
    ):
        assert run(["calibrate", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_the_whole_verb(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda *_, **__: loaded())
    words = ["calibrate", "--out", str(tmp_path), "--minutes", "0.001", "--widths", "1,2,4",
             "--contexts", "8", "--batches", "1", "-k", "1,2", "--acceptance", "0.8",
             "-d", "ngram", "-d", "fastmtp", "-d", "peft-bd-gated"]  # fmt: skip
    torch.manual_seed(0)
    assert run([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["check"]) >= 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calibration.html", "calibration.json"]
    assert Calibration.read(tmp_path).draft_lengths("ngram") == (1, 2)
    assert (tmp_path / "calibration.html").stat().st_size > 5000
    assert run([*words, "--force"]) == 0
    shown = capsys.readouterr().out
    for part in ("needs", "predicted", "vLLM, speculative", "SGLANG_SIMULATE_ACC_LEN=2.44 "):
        assert part in shown, "the last rate goes on: K = 2 is asked elsewhere, too"


def test_drafters_without_a_price_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand(*_: Any, **__: Any) -> Any:
        return loaded(Wrapped(tiny_verifier(vocab=64)))

    monkeypatch.setattr("breakeven.verifier.load.load_verifier", stand)
    words = ["calibrate", "--out", str(tmp_path), "--minutes", "0.001", "--widths", "1",
             "--contexts", "8", "--batches", "1", "-k", "1"]  # fmt: skip
    assert run([*words, "-d", "tree", "-d", "hybrid"]) == 0
    said = capsys.readouterr().err
    assert "left out, tree: " in said
    assert "left out, hybrid: " in said
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda *_, **__: loaded())
    assert run([*words, "-d", "tree", "--force"]) == 0
    assert "its first token is free, so give a K above 1: tree" in capsys.readouterr().out
    assert run([*words, "--acceptance", "", "--force"]) == 2, "nothing is no acceptance"


def test_the_machines_pace_is_taken_out() -> None:
    """Half of the rounds ran at half the speed; one cell was disturbed alone."""
    rounds = [{"a": 1.0, "b": 3.0, "c": 5.0}, {"a": 2.0, "b": 6.0, "c": 10.0}] * 3
    rounds[4] = {"a": 9.0, "b": 3.0, "c": 5.0}
    found = paces(rounds)
    assert [f / found[0] for f in found] == pytest.approx([1, 2, 1, 2, 1, 2])


def test_rounds_are_timed_at_a_usual_acceptance_and_plain_steps_often() -> None:
    """What a drafter has to read of a round's tokens is part of its price."""
    plan = replace(SMALL, base=16)
    walkers, skipped = walkers_of(tiny_verifier(vocab=64), plan)
    assert skipped == ()
    plain = [w for w in walkers if w.name == "ar"]
    assert [w.batch for w in plain] == [1, 2, 1, 1, 1], "the root of 12 more"
    [drafted] = [w for w in walkers if (w.name, w.k, w.batch) == ("fastmtp", 3, 1)]
    accepted = 0.0
    for _ in range(12):
        drafted.step()
        accepted += sum(r.accepted for r in drafted.ledger.rounds) / 12
    assert accepted == pytest.approx(0.6 + 0.36 + 0.216, abs=0.3)


def test_a_break_even_below_one_is_said_in_words() -> None:
    cheap = calibration(drafters={"cheap": {2: DraftPrice(3, {1: 0.0}, {1: 0.0})}},
                        curves={1: CostCurve.of({1: 0.02, 3: 0.016}, 64)})  # fmt: skip
    assert cheap.round_cost("cheap", 2).break_even < 1
    assert rate_needed(cheap, "cheap", 2) == "any"
    _, lines = calibrated_lines(cheap)
    assert any("so it pays whatever is accepted" in line.meaning for line in lines)


def test_answers_side_by_side_are_whole_and_keep_step() -> None:
    verifier = tiny_verifier(vocab=64)
    script = script_of(Decoding(verifier, frozenset(), 40), prompts(1))
    [prompt] = script
    methods = [Method(), Method("oracle", Oracle(script, 64), 3)]
    done = SideBySide(verifier, methods, prompt, 40, seconds=0.0)
    assert done.answers == {"ar": [], "oracle": []}, "warming up counts for nothing"
    done.advance(0.25)
    assert [len(own) for own in done.answers.values()] == [0, 0]
    done.advance(1.0)
    answers = done.answers
    assert [len(answers[m.name]) for m in methods] == [FEWEST, FEWEST]
    for own in answers["oracle"]:
        assert sum(r.committed for r in own.rounds) == 39, "the first token is the prefill's"
        assert own.seconds > 0
    assert answers["ar"][0].rounds == []
