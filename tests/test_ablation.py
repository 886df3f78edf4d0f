"""The numbers of an ablation against hand-made rounds, and its words against hand-made numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breakeven.ablation.equality import Equality, verdict_line
from breakeven.ablation.findings import Difference, differences, findings, sentence
from breakeven.ablation.outcome import Outcome, TeacherForced, outcome_of, played
from breakeven.ablation.plan import Variant
from breakeven.ablation.trials import Trials, paired
from breakeven.errors import DataError
from breakeven.measure.audit import Finding
from breakeven.measure.configuration import PLAIN
from breakeven.measure.differences import Totals, joint_differences
from breakeven.measure.records import Record, histogram
from breakeven.measure.statistics import Estimate
from breakeven.train.recipe import GatedRecipe

FORCED = TeacherForced(0.5, 1.9)
PLAIN_STEP_S = 0.02


def variant(name: str, against: str = "base", k: int = 3, says: str = "") -> Variant:
    return Variant(name, "g", says, against, name, {}, k, {0: GatedRecipe()})


def played_rounds(
    config: str, id: str, accepted: list[int], k: int = 3, round_s: float = 0.04
) -> Record:
    """An answer whose rounds accepted so many of ``k`` drafts; half of a round is drafting."""
    committed = sum(accepted) + len(accepted)
    spent = round_s * len(accepted)
    return Record(
        config=config,
        repeat=0,
        id=id,
        category="chat",
        prompt_tokens=5,
        tokens=committed + 1,
        finish="length",
        prefill_s=0.1,
        decode_s=spent,
        draft_s=spent * 0.5,
        verify_s=spent * 0.4,
        other_s=spent * 0.1,
        rounds=len(accepted),
        drafted=k * len(accepted),
        accepted=sum(accepted),
        committed=committed,
        accepted_histogram=histogram(accepted),
        drafted_histogram=histogram([k] * len(accepted)),
        token_ids=tuple(range(committed + 1)),
    )


def beside(own: Record) -> tuple[Record, Record]:
    """With plain decoding's record of the same answer."""
    steps = [0] * own.committed
    plain = played_rounds(PLAIN, own.id, steps, k=0, round_s=PLAIN_STEP_S)
    return plain, own


def trials(name: str, *answers: list[int]) -> Trials:
    return {f"p{i}": beside(played_rounds(name, f"p{i}", a)) for i, a in enumerate(answers)}


def outcome(name: str, *seeds: Trials, against: str = "base", says: str = "") -> Outcome:
    by_seed = dict(enumerate(seeds))
    return outcome_of(variant(name, against, says=says), by_seed, played([by_seed]), FORCED)


def test_every_number_of_a_row_from_hand_made_rounds() -> None:
    found = outcome("a", trials("a", [3, 0], [1, 1, 0]), trials("a", [3, 3], [0, 0, 0]))
    # seed 0: 10 tokens in 5 rounds; seed 1: 11 tokens in 5 rounds
    assert found.by_seed == {0: 10 / 5, 1: 11 / 5}
    assert found.acceptance_length.value == pytest.approx(21 / 10)
    assert found.survival == (5 / 10, 3 / 10, 3 / 10)
    assert found.acceptance.acceptance_rate == pytest.approx(11 / 30)
    assert found.cost.draft == pytest.approx(1.0)  # half of 0.04 s, in steps of 0.02 s
    assert found.cost.verify == pytest.approx(0.8)
    assert found.cost.other == pytest.approx(0.2)
    assert found.speed.value == pytest.approx(2.1 / 2.0)
    assert found.totals.parts.tolist() == [5 + 8, 5 + 3]  # per prompt, over the seeds
    assert found.totals.wholes.tolist() == [2 + 2, 3 + 3]
    row = found.row()
    assert (row["rounds"], row["drafted"], row["accepted"], row["committed"]) == (10, 30, 11, 21)
    assert (row["accuracy"], row["simulated_acceptance_length"]) == (0.5, 1.9)


def test_the_speed_is_the_ratio_of_times_so_its_interval_lies_around_it() -> None:
    found = outcome("a", trials("a", *[[i % 4, (i * 3) % 4] for i in range(8)]))
    assert found.speed.low < found.speed.value < found.speed.high
    assert found.acceptance_length.low < found.acceptance_length.value


def test_a_prompt_without_a_round_is_left_out_for_all() -> None:
    with_one, without = trials("a", [1, 1], []), trials("b", [2, 0], [1])
    assert played([{0: with_one}, {0: without}]) == ["p0"]
    with pytest.raises(DataError, match="no prompt is answered with two tokens"):
        played([{0: trials("a", [], [])}])


def test_of_two_records_of_a_prompt_the_last_pair_counts() -> None:
    first, second = beside(played_rounds("a", "p", [1])), beside(played_rounds("a", "p", [2]))
    lost = beside(played_rounds("a", "q", [1]))[0]  # killed before the variant's own was written
    assert paired([*first, lost, *second], "a") == {"p": second}


def test_differences_are_paired_by_prompt() -> None:
    easy_and_hard = [[3, 3], [0, 0], [3, 2], [0, 1], [2, 3], [1, 0], [3, 3], [0, 0]]
    better = [[min(3, a + 1) for a in answer] for answer in easy_and_hard]
    outcomes = {
        "base": outcome("base", trials("base", *easy_and_hard)),
        "a": outcome("a", trials("a", *better)),
        "same": outcome("same", trials("same", *easy_and_hard)),
    }
    found = differences(outcomes)
    assert set(found) == {"a", "same"}
    a = found["a"]
    expected = outcomes["a"].acceptance_length.value - outcomes["base"].acceptance_length.value
    assert a.estimate.value == pytest.approx(expected)
    assert 0 < a.estimate.low < expected < a.estimate.high
    own, base = outcomes["a"].acceptance_length, outcomes["base"].acceptance_length
    assert a.estimate.high - a.estimate.low < own.high - own.low + base.high - base.low
    assert found["same"].estimate == Estimate(0.0, 0.0, 0.0)
    assert not found["same"].shown
    lines = findings([outcomes["base"], outcomes["a"], outcomes["same"]], found)
    assert len(lines) == 3
    assert lines[0].startswith(f"a: +{expected:.2f} (")
    assert "no difference shown" in lines[1]
    assert lines[2].startswith("most gained: a, +")
    assert lines[2].endswith("undecided: same")


def test_the_intervals_of_differences_cover_the_truth_together() -> None:
    """Eight variants without any effect: in 95 % of ablations none of them shows one."""
    generator = np.random.default_rng(0)
    clean = 0
    runs = 200
    for run in range(runs):
        wholes = generator.integers(20, 40, 24).astype(float)
        base = Totals(wholes * generator.normal(2.0, 0.3, 24), wholes)
        others = [
            Totals(base.parts + wholes * generator.normal(0.0, 0.2, 24), wholes) for _ in range(8)
        ]
        found = joint_differences([(o, base) for o in others], seed=run, resamples=400)
        clean += all(d.low <= 0 <= d.high for d in found)
    assert clean / runs >= 0.90


def test_few_prompts_give_wide_intervals_and_one_gives_none() -> None:
    a = Totals(np.array([3.0, 5.0]), np.array([2.0, 2.0]))
    b = Totals(np.array([2.0, 3.0]), np.array([2.0, 2.0]))
    [two] = joint_differences([(a, b)])
    assert two.low < 0 < two.value < two.high
    single = [Totals(t.parts[:1], t.wholes[:1]) for t in (a, b)]
    [one] = joint_differences([(single[0], single[1])])
    assert one.value == 0.5
    assert math.isnan(one.low)
    assert joint_differences([]) == []


SPEED = Estimate(0.8, 0.75, 0.85)


@pytest.mark.parametrize(
    ("estimate", "by_seed", "words"),
    [
        (Estimate(-0.41, -0.55, -0.28), {0: -0.4}, "−0.41 (−0.55 to −0.28) tokens per round aga"),
        (Estimate(0.05, -0.02, 0.12), {0: 0.05}, "against base, no difference shown; 0.80"),
        (Estimate(0.05, 0.02, 0.12), {0: 0.2, 1: -0.1}, "but the seeds disagree (+0.20, −0.10)"),
        (Estimate(0.05), {0: 0.05}, "+0.05 tokens per round against base, from one prompt"),
    ],
)
def test_a_sentence_follows_the_interval(
    estimate: Estimate, by_seed: dict[int, float], words: str
) -> None:
    assert words in sentence("x", Difference("base", estimate, by_seed), SPEED)


def test_a_group_without_any_difference_says_how_large_one_could_be() -> None:
    outcomes = [outcome(n, trials(n, [1], [2])) for n in ("a", "b")]
    found = {
        "a": Difference("base", Estimate(0.01, -0.1, 0.12), {0: 0.01}),
        "b": Difference("base", Estimate(-0.05, -0.2, 0.1), {0: -0.05}),
    }
    assert findings(outcomes, found)[-1] == (
        "no choice of this group shows a difference; none is larger than 0.20"
    )


def test_what_is_said_of_the_outputs() -> None:
    ties = {"a": Equality(Finding.NEAR_TIE, 8, 1), "b": Equality(Finding.INCONCLUSIVE, 8, 0)}
    line = verdict_line(ties)
    assert "in 16 answers of 2 variants, 1 of them after a near-tie" in line
    assert "nothing was drafted by b" in line
