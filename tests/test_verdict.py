"""The verdict: one sentence that a layperson understands, and what stands behind it."""

from __future__ import annotations

from typing import Any

import pytest

from breakeven.cost.curve import CostCurve, Point
from breakeven.measure.answers import Answer
from breakeven.measure.audit import Audit, judge
from breakeven.measure.divergence import Divergence, Kind, Output
from breakeven.measure.doubts import FEW_PROMPTS, few_prompts, more, slow_plain_step
from breakeven.measure.performance import Performance
from breakeven.measure.rescore import Rescorer
from breakeven.measure.statistics import Estimate
from breakeven.measure.verdict import Verdict, decide
from breakeven.measure.wording import Scene, between, speed
from measuring import VOCAB
from tiny import tiny_verifier

SCENE = Scene("smollm2-135m", "AMD EPYC, 2 threads", prompts=24)
NAN = float("nan")


def row(
    config: str, ratio: float, low: float, high: float, category: str = "all", **changes: Any
) -> Performance:
    fields: dict[str, Any] = {
        "tokens_per_s": 40 * ratio, "end_to_end_ratio": ratio, "c_d": 0.1, "c_v": 1.2,
        "c_s": 0.1, "break_even": 1.4, "acceptance_length": 1.4 * ratio, "mean_ratio": ratio,
        "spread": 0.15, "prompts": 24,
    }  # fmt: skip
    return Performance(
        config=config, category=category, ratio=ratio, ratio_low=low, ratio_high=high,
        **{**fields, **changes},
    )  # fmt: skip


PLAIN = row("ar", 1.0, 1.0, 1.0)
GOOD = row("gated-k2", 1.21, 1.14, 1.27)
BAD = row("ngram-k4", 0.93, 0.90, 0.96)
OPEN = row("mtp-k2", 1.02, 0.97, 1.08)


def audit(config: str, *kinds: Kind, drafted: int = 10) -> Audit:
    outputs = {f"p{i}": Output(f"p{i}", (1,), (2, 3), "length", drafted) for i in range(4)}
    found = tuple(Divergence(f"p{i}", 1, 3, 4, 2e-5, kind) for i, kind in enumerate(kinds))
    plain_audit = judge(config, outputs, outputs, Rescorer(tiny_verifier(vocab=VOCAB)))
    return Audit(
        config, plain_audit.level, outputs, len(kinds), found, plain_audit.margins, None
    )  # fmt: skip


def verdict(*rows: Performance, audits: tuple[Audit, ...] = ()) -> Verdict:
    return decide([PLAIN, *rows], audits, SCENE)


def test_it_pays() -> None:
    found = verdict(BAD, GOOD, OPEN, audits=tuple(audit(r.config) for r in (BAD, GOOD, OPEN)))
    assert (found.verdict, found.best) == (Answer.PAYS, "gated-k2")
    assert found.sentence == (
        "It pays: gated-k2 is 21 % faster than plain decoding of smollm2-135m on this machine "
        "(AMD EPYC, 2 threads), with 95 % confidence between 14 % and 27 % faster, and its "
        "answers are the same."
    )
    assert any("ngram-k4 does not pay" in reason for reason in found.reasons)


def test_the_fastest_of_those_that_pay_is_the_best() -> None:
    risky = row("risky-k8", 1.3, 0.9, 1.7)
    assert verdict(GOOD, risky, row("slow-k2", 1.1, 1.05, 1.15)).best == "gated-k2"


def test_it_does_not_pay_and_what_would_have_to_change() -> None:
    found = verdict(BAD, row("worse-k8", 0.7, 0.6, 0.8))
    assert (found.verdict, found.best) == (Answer.DOES_NOT_PAY, "ngram-k4")
    assert found.sentence == (
        "It does not pay: the best configuration, ngram-k4, is 7 % slower than plain decoding of "
        "smollm2-135m on this machine (AMD EPYC, 2 threads), with 95 % confidence between 4 % "
        "and 10 % slower, because a round yields 1.30 tokens and costs as much as 1.40 plain "
        "steps."
    )
    outlook = next(r for r in found.reasons if "would pay with more than" in r)
    assert "more than 1.40 tokens a round" in outlook
    assert "with free drafts it would be 0 % faster" in outlook  # 1.302 / 1.3
    assert "at the price of a plain step 8 % faster" in outlook  # 1.302 / 1.2
    assert "with both 18 % faster" in outlook  # 1.302 / 1.1


def test_it_is_undecided_and_what_would_decide() -> None:
    found = verdict(BAD, OPEN)
    assert (found.verdict, found.best) == (Answer.UNDECIDED, "mtp-k2")
    assert found.sentence == (
        "Undecided: mtp-k2 is 2 % faster than plain decoding of smollm2-135m on this machine "
        "(AMD EPYC, 2 threads), but with 95 % confidence between 3 % slower and 8 % faster."
    )
    assert "mtp-k2: about 546 prompts instead of 24 would decide" in found.reasons
    assert "mtp-k2: about 451 prompts instead of 24 would decide" in verdict(OPEN).reasons


def test_the_best_of_many_is_judged_by_an_interval_that_holds_for_all() -> None:
    lucky = row("lucky-k3", 1.08, 1.01, 1.15)
    joint = {"lucky-k3": Estimate(1.08, 0.98, 1.18), "ngram-k4": Estimate(0.93, 0.89, 0.97)}
    assert verdict(lucky, BAD).verdict is Answer.PAYS
    found = decide([PLAIN, lucky, BAD], (), SCENE, joint=joint)
    assert (found.verdict, found.best) == (Answer.UNDECIDED, "lucky-k3")
    assert (found.ratio_low, found.ratio_high) == (0.98, 1.18)
    assert "between 2 % slower and 18 % faster" in found.sentence
    assert found.reasons[0] == (
        "2 configurations are compared: the 95 % intervals here are wider than each one's own "
        "(performance.csv), so that they hold for the best of them"
    )
    assert any("ratio 0.93, 95 % 0.89–0.97" in reason for reason in found.reasons)


def test_a_configuration_alone_needs_no_wider_interval() -> None:
    assert not any("are compared" in reason for reason in verdict(GOOD).reasons)


def test_a_difference_too_small_to_settle() -> None:
    found = verdict(row("mtp-k2", 1.001, 0.97, 1.03))
    assert any("would not be settled by 1000 prompts" in reason for reason in found.reasons)


def test_one_prompt_decides_nothing() -> None:
    found = verdict(row("mtp-k2", 1.5, NAN, NAN, prompts=1, spread=NAN))
    assert found.verdict is Answer.UNDECIDED
    assert found.sentence.endswith("but 1 prompt gives no interval.")
    assert f"mtp-k2: measure on {FEW_PROMPTS} or more prompts" in found.reasons


def test_every_message_asks_for_the_same_number_of_prompts() -> None:
    few = few_prompts(3)
    assert few is not None
    assert few.endswith(more(3))
    wild = verdict(row("mtp-k2", 1.5, 0.5, 4.0, prompts=20))
    assert "which are too few to be sure of anything" in wild.sentence
    assert "times as fast" not in wild.sentence, "no interval is told that asks for this unit"
    assert "mtp-k2: measure on 40 or more prompts" in wild.reasons, "not fewer than there were"


def test_the_verdict_is_one_sentence() -> None:
    one = row("mtp-k2", 1.5, NAN, NAN, prompts=1, spread=NAN)
    wild = row("mtp-k2", 1.5, 0.5, 4.0, prompts=2)
    for found in map(verdict, (GOOD, BAD, OPEN, one, wild)):
        assert found.sentence.endswith(".")
        assert ". " not in found.sentence
        assert ";" not in found.sentence


def test_a_break_even_below_one_is_said_in_words() -> None:
    found = verdict(row("ngram-k1", 1.01, 0.98, 1.04, break_even=0.83, c_v=0.8, c_d=0.0))
    assert any("ngram-k1 pays whatever is accepted" in reason for reason in found.reasons)


def test_a_bug_overrides_speed() -> None:
    found = verdict(GOOD, audits=(audit("gated-k2", Kind.BUG, Kind.NEAR_TIE),))
    assert (found.verdict, found.best) == (Answer.NOT_USABLE, None)
    assert found.sentence == (
        "Not usable: gated-k2 gives answers that are not smollm2-135m's own (2 of 4 differ), "
        "which is a bug, so its speed does not count."
    )
    assert found.row()["verdict"] == "not usable"


def test_a_buggy_configuration_does_not_hide_a_sound_one() -> None:
    found = verdict(GOOD, OPEN, audits=(audit("gated-k2", Kind.BUG), audit("mtp-k2")))
    assert (found.verdict, found.best) == (Answer.UNDECIDED, "mtp-k2")
    assert any(reason.startswith("gated-k2: bug") for reason in found.reasons)


def test_near_ties_are_mentioned() -> None:
    found = verdict(GOOD, audits=(audit("gated-k2", Kind.NEAR_TIE),))
    assert found.verdict is Answer.PAYS
    assert "the same but for rounding" in found.sentence
    assert "1 of 4 answers" in found.sentence


def test_unchecked_exactness_is_admitted() -> None:
    assert "was not checked" in verdict(GOOD).sentence


def test_drafting_nothing_is_mentioned() -> None:
    found = verdict(BAD, audits=(audit("ngram-k4", drafted=0),))
    assert any("inconclusive" in reason for reason in found.reasons)


def test_losing_categories_of_a_winner_and_winning_ones_of_a_loser_are_named() -> None:
    losing = row("gated-k2", 0.91, 0.85, 0.97, category="code")
    winning = row("ngram-k4", 1.4, 1.2, 1.6, category="extraction")
    dull = row("ngram-k4", 0.95, 0.8, 1.1, category="chat")
    usual = row("gated-k2", 1.3, 1.2, 1.4, category="chat")
    found = verdict(GOOD, losing, usual, BAD, winning, dull)
    assert "gated-k2 does not pay on code (ratio 0.91, 95 % 0.85–0.97)" in found.reasons
    assert "ngram-k4 pays on extraction (ratio 1.40, 95 % 1.20–1.60)" in found.reasons
    assert not any("chat" in reason for reason in found.reasons)


def test_doubts_stand_at_the_end_of_the_reasons() -> None:
    assert decide([PLAIN, GOOD], (), SCENE, ["busy"]).reasons[-1] == "doubt: busy"


def test_a_slow_plain_step_is_a_doubt() -> None:
    assert slow_plain_step(CostCurve.of({1: 0.073, 4: 0.068})) is not None
    assert slow_plain_step(CostCurve.of({1: 0.024, 4: 0.026})) is None
    overlapping = (Point(0, 1, 0.073, 0.060, 0.080), Point(0, 4, 0.068, 0.060, 0.070))
    assert slow_plain_step(CostCurve(overlapping)) is None


def test_twice_as_fast_is_said_so() -> None:
    found = verdict(row("oracle-k8", 2.5, 2.2, 2.9))
    assert "oracle-k8 is 2.5 times as fast as plain decoding" in found.sentence
    assert "between 2.2 times as fast and 2.9 times as fast" in found.sentence


def test_a_sentence_keeps_to_one_unit() -> None:
    found = verdict(row("oracle-k8", 1.61, 1.33, 2.1))
    assert "oracle-k8 is 1.61 times as fast as plain decoding" in found.sentence
    assert "between 1.33 times as fast and 2.1 times as fast" in found.sentence
    slow = row("oracle-k8", 0.9, 0.8, 0.95, acceptance_length=2.4, c_d=0.5)
    outlook = next(r for r in verdict(slow).reasons if "with free drafts" in r)
    assert "with free drafts it would be 1.85 times as fast" in outlook  # 2.4 / 1.3
    assert "with both 2.2 times as fast" in outlook  # 2.4 / 1.1
    assert " % faster" not in outlook


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.02, 2.4, "between 1.02 times as fast and 2.4 times as fast"),
        (1.02, 1.98, "between 2 % and 98 % faster"),
        (0.5, 0.6, "between 40 % and 50 % slower"),
    ],
)
def test_intervals_in_words(low: float, high: float, words: str) -> None:
    assert between(low, high) == words


def test_a_ratio_in_words() -> None:
    assert speed(0.999) == "0 % faster"


def test_the_machine_is_named_by_its_gpu_or_its_threads() -> None:
    machine = {"cpu": "AMD EPYC", "threads": 1, "gpu": None}
    described = {"verifier": {"name": "m"}, "machine": machine, "prompts": 3}
    assert Scene.of(described).machine == "AMD EPYC, 1 thread"
    machine["gpu"] = "NVIDIA H200"
    assert Scene.of(described).machine == "NVIDIA H200"


def test_the_only_category_is_no_exception_to_all() -> None:
    """Its own interval is narrower than the joint one, by which the run is judged."""
    alone = row("gated-k2", 0.91, 0.85, 0.97, category="chat")
    assert not any("on chat" in reason for reason in verdict(GOOD, alone).reasons)
