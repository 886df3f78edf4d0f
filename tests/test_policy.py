"""Draft-length policies: prices, survival, probing, and choices that the ledger explains."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from breakeven.core import Choice, Draft, Pass, Phase, Reason, Verified
from breakeven.cost.curve import CostCurve
from breakeven.cost.ledger import Ledger
from breakeven.cost.running import RunningCost
from breakeven.cost.survival import RunningSurvival
from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.base import Policy, Prospect
from breakeven.decode.policy.fixed import Confidence, Fixed
from breakeven.decode.policy.named import policy_named
from breakeven.decode.policy.replay import replay
from breakeven.decode.request import Request
from breakeven.drafters.base import Context, Drafter, LookupDrafter
from breakeven.drafters.fastmtp import FastMTP
from breakeven.drafters.hybrid import Hybrid
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.ngram import NGram
from breakeven.drafters.registry import METHODS, untrained
from breakeven.drafters.scripted import AntiOracle, Oracle, RandomDrafter
from breakeven.drafters.wrapper import Counterfeit
from breakeven.errors import DataError, RecipeError
from breakeven.measure.bench import run_bench
from breakeven.measure.configuration import Configuration
from breakeven.measure.recipe import BenchRecipe
from breakeven.report.outlook import outlooks
from breakeven.report.run import load_run
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Verifier
from breakeven.verifier.timing import quick_curve
from measuring import loaded, prompts
from simulated import CURVE, Dice, World
from tiny import tiny_verifier

VOCAB = 64


class Counting(RandomDrafter):
    """Counts what it is asked and told."""

    def __init__(self) -> None:
        super().__init__(VOCAB)
        self.proposed = self.observed = 0

    def propose(self, context: Context, k: int) -> list[Draft]:
        self.proposed += 1
        return super().propose(context, k)

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        self.observed += 1


class Sure(LookupDrafter):
    """Passes off another's drafts as looked up, with a long match."""

    def __init__(self, source: Drafter) -> None:
        self.source = source

    def glimpse(self, context: Context, k: int) -> list[Draft]:
        return [replace(d, match=9) for d in self.source.propose(context, k)]


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return tiny_verifier()


@pytest.fixture(scope="module")
def asked() -> list[Request]:
    rng = random.Random(5)
    prompts = [tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(1, 16))) for _ in range(8)]
    return [Request(str(i), p, rng.randrange(1, 40)) for i, p in enumerate(prompts)]


@pytest.fixture(scope="module")
def answers(verifier: Verifier, asked: list[Request]) -> dict[str, list[int]]:
    return {c.id: c.tokens for c in generate(verifier, asked)}


def drafters(asked: list[Request], answers: dict[str, list[int]]) -> dict[str, Drafter]:
    script = {r.prompt: answers[r.id] for r in asked}
    return {
        "ngram": NGram(),
        "oracle": Oracle(script, VOCAB),
        "anti-oracle": AntiOracle(script, VOCAB),
        "random": RandomDrafter(VOCAB),
    }


def policies() -> dict[str, Policy]:
    return {
        "adaptive": Adaptive(8, CURVE),
        "confidence": Confidence(4),
        "dice": Dice(4),
    }


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("policy", policies())
@pytest.mark.parametrize("drafter", ["ngram", "oracle", "anti-oracle", "random"])
def test_t1_no_policy_changes_the_tokens(
    verifier: Verifier,
    asked: list[Request],
    answers: dict[str, list[int]],
    drafter: str,
    policy: str,
    batch: int,
) -> None:
    got = generate(
        verifier,
        asked,
        drafter=drafters(asked, answers)[drafter],
        policy=policies()[policy],
        batch=batch,
    )
    assert {c.id: c.tokens for c in got} == answers


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("policy", ["dice", "adaptive"])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_t1_every_method_may_be_skipped_at_any_time(
    verifier: Verifier,
    asked: list[Request],
    answers: dict[str, list[int]],
    name: str,
    policy: str,
    batch: int,
) -> None:
    drafter = untrained(name, verifier, 4)
    if drafter is None:
        pytest.skip(f"{name} wraps another drafter")
    got = generate(verifier, asked, drafter=drafter, policy=policies()[policy], batch=batch)
    assert {c.id: c.tokens for c in got} == answers


def test_the_bound_of_a_drafters_passes_does_not_bound_what_is_looked_up(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]]
) -> None:
    inner = drafters(asked, answers)["random"]
    inner.longest = 2
    helper, ledger = Hybrid(Sure(drafters(asked, answers)["oracle"]), inner), Ledger()
    policy = Adaptive(8, CURVE)
    list(generate(verifier, asked, drafter=helper, policy=policy, ledger=ledger))
    assert policy.longest == 8
    assert max(r.drafted for r in ledger.rounds) == 8
    assert policy.choose([Prospect("new")], 8).k <= 2, "a pass would be needed"
    spoilt = Adaptive(8, CURVE)
    spoilt.prepare(verifier, Counterfeit(helper))
    assert spoilt.longest == 2, "nothing is looked up there"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "drafter",
    [
        *("ngram", "oracle", "anti-oracle", "random"),
        *("quantized", "layer-skip", "fastmtp", "hybrid", "peft-bd-gated", "tree"),
    ],
)
def test_the_ledger_replays_to_the_same_choices(
    verifier: Verifier,
    asked: list[Request],
    answers: dict[str, list[int]],
    drafter: str,
    batch: int,
) -> None:
    ledger = Ledger()
    helper = drafters(asked, answers).get(drafter) or untrained(drafter, verifier, 4)
    assert helper is not None
    policy = Adaptive(8, CURVE)
    done = list(
        generate(verifier, asked, drafter=helper, policy=policy, batch=batch, ledger=ledger)
    )
    fresh = Adaptive(8, CURVE)
    fresh.prepare(verifier, helper)
    judged = [p.batch for p in ledger.passes if p.phase in (Phase.PLAIN, Phase.VERIFY)]
    chosen = [c for c, size in zip(replay(fresh, ledger), judged, strict=True) for _ in range(size)]
    assert chosen == [r.choice for r in ledger.rounds]
    assert len(chosen) == sum(len(c.rounds) for c in done)


def test_a_ledger_without_its_rounds_is_refused(verifier: Verifier, asked: list[Request]) -> None:
    ledger = Ledger()
    list(generate(verifier, asked[:2], ledger=ledger))  # plain decoding has no rounds
    with pytest.raises(DataError, match="more passes than rounds"):
        list(replay(Fixed(4), ledger))


def test_a_plain_step_is_not_drafted_for_but_is_told(
    verifier: Verifier, asked: list[Request]
) -> None:
    drafter, ledger = Counting(), Ledger()
    list(generate(verifier, asked, drafter=drafter, policy=Dice(3), ledger=ledger))
    chosen = [r.choice.k for r in ledger.rounds if r.choice]
    assert 0 in chosen
    assert drafter.observed == len(ledger.rounds)
    assert drafter.proposed <= sum(k > 0 for k in chosen)
    assert ledger.count(Phase.PLAIN) == sum(k == 0 for k in chosen)


@pytest.mark.parametrize("batch", [1, 3])
def test_fastmtp_catches_up_after_rounds_without_drafts(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]], batch: int
) -> None:
    """It drafts as if it had drafted in every round: what it reads is the same."""

    assert isinstance(verifier, LeanVerifier)
    layer = MTPLayer.of(verifier).freeze()

    class Spy(FastMTP):
        def __init__(self) -> None:
            super().__init__(layer, None, verifier)
            self.drafts: dict[tuple[int, ...], tuple[int, ...]] = {}

        def propose(self, context: Context, k: int) -> list[Draft]:
            made = super().propose(context, k)
            for tokens, draft in zip(context.tokens, made, strict=True):
                self.drafts[tuple(tokens)] = draft.tokens
            return made

    often, seldom = Spy(), Spy()
    for spy, policy in ((often, Fixed(3)), (seldom, Dice(3))):
        got = generate(verifier, asked, drafter=spy, policy=policy, batch=batch)
        assert {c.id: c.tokens for c in got} == answers
    both = often.drafts.keys() & seldom.drafts.keys()
    assert len(both) > 10
    for place in both:
        ours, theirs = seldom.drafts[place], often.drafts[place]
        shorter = min(len(ours), len(theirs))
        assert ours[:shorter] == theirs[:shorter]


def test_confidence_cuts_where_the_product_is_too_small() -> None:
    policy = Confidence(4, threshold=0.5)
    chain = Draft((5, 6, 7, 8), confidences=(0.9, 0.8, 0.6, 0.99))
    assert policy.trim(chain).tokens == (5, 6)
    assert policy.trim(Draft((5, 6))).tokens == (5, 6)  # no confidences, no opinion
    assert policy.trim(Draft((5, 6), free=1, confidences=(0.1, 0.9))).tokens == (5,)
    tree = Draft((5, 6, 7), parents=(-1, -1, 0), confidences=(0.9, 0.6, 0.7))
    assert policy.trim(tree).tokens == (5, 6, 7)  # 0.9 · 0.7, not 0.9 · 0.6 · 0.7


def test_fastmtp_says_how_sure_it_is(verifier: Verifier, asked: list[Request]) -> None:
    drafter = untrained("fastmtp", verifier, 4)
    assert drafter is not None
    seen: list[Draft] = []

    class Watching(Confidence):
        def trim(self, draft: Draft) -> Draft:
            seen.append(draft)
            return super().trim(draft)

    policy = Watching(4, threshold=0.05)
    done = list(generate(verifier, asked, drafter=drafter, policy=policy))
    assert all(0 < share <= 1 for draft in seen for share in draft.confidences)
    assert all(len(draft.confidences) == len(draft.tokens) for draft in seen)
    drafted = sum(r.drafted for c in done for r in c.rounds)
    assert 0 < drafted < sum(len(draft.tokens) for draft in seen)  # some were cut


def test_an_always_wrong_drafter_costs_almost_nothing() -> None:
    lookup = World(
        lambda position, match: 0.0, matches=lambda dice: (dice.choice((1, 1, 2, 3)), 16)
    )
    block = World(lambda position, match: 0.0, draft=lambda k: 0.010, free=1)
    recursive = World(lambda position, match: 0.0, draft=lambda k: 0.002 * k)
    for world in (lookup, block, recursive):
        policy = world.prepare(Adaptive(16, CURVE))
        slow = [world.run(policy, 128, str(i)) for i in range(8)]
        assert sum(slow) / len(slow) < 1.02
        assert max(slow) < 1.04
        fixed = world.run(Fixed(4), 128)
        assert fixed > 1.04  # what it was kept from


@pytest.mark.parametrize(
    ("rate", "draft"), [(0.3, 0.001), (0.5, 0.001), (0.7, 0.001), (0.9, 0.001), (0.9, 0.004)]
)
def test_a_good_drafter_is_used_nearly_as_well_as_the_best_fixed_length(
    rate: float, draft: float
) -> None:
    world = World(lambda position, match: rate, draft=lambda k: draft * k)
    best = min(world.run(Fixed(k), 2000) for k in range(1, 17))
    policy = world.prepare(Adaptive(16, CURVE))
    world.run(policy, 500, "first")
    assert world.run(policy, 2000, "second") < 1.06 * min(best, 1.0)


def unsure(dice: random.Random) -> float:
    """Mostly sure; one token in eight is a toss-up."""
    return dice.choice((0.999,) * 7 + (0.5,))


@pytest.mark.parametrize("believed", [lambda word: word, lambda word: word**3])
@pytest.mark.parametrize("draft", [0.001, 0.003])
def test_a_drafter_that_says_how_sure_it_is_beats_every_fixed_length(
    draft: float, believed: Callable[[float], float]
) -> None:
    """Whatever its words are worth: that is learned."""
    world = World(lambda position, match: 0.0, draft=lambda k: draft * k, says=unsure)
    world.believed = lambda word: min(1.0, believed(word))
    best = min(world.run(Fixed(k), 4000) for k in range(1, 17))
    policy = world.prepare(Adaptive(16, CURVE))
    world.run(policy, 500, "first")
    assert world.run(policy, 4000, "second") < min(1.02, 0.97 * best)


def test_words_that_mean_nothing_cost_little() -> None:
    for right in (0.0, 0.4, 0.9):
        world = World(lambda position, match: 0.0, draft=lambda k: 0.002 * k, says=unsure)
        world.believed = lambda word, right=right: right  # type: ignore[misc]
        best = min(1.0, *(world.run(Fixed(k), 2000) for k in range(1, 17)))
        policy = world.prepare(Adaptive(16, CURVE))
        world.run(policy, 500, "first")
        assert world.run(policy, 2000, "second") < 1.06 * best


def test_a_match_is_worth_what_its_length_was_worth_before() -> None:
    def rate(position: int, match: int | None) -> float:
        return 0.95 if match and match + position > 4 else 0.0

    world = World(rate, matches=lambda dice: (dice.choice((1, 8)), 16))
    policy = world.prepare(Adaptive(16, CURVE))
    world.run(policy, 2000)
    long, short = (policy.choose([Prospect("new", match, 16)], 100) for match in (8, 1))
    assert long.k >= 8
    assert long.reason is Reason.BEST
    assert short.k == 0


def test_a_request_that_starts_badly_gets_another_chance() -> None:
    turned = False

    def rate(position: int, match: int | None) -> float:
        return 0.9 if turned else 0.0

    world = World(rate, draft=lambda k: 0.001 * k)

    class Split(Adaptive):
        """The same request goes on: it must not be ended between the halves."""

        def end(self, request: str) -> None:
            return

    policy = world.prepare(Split(8, CURVE))
    world.run(policy, 200)
    bad = [c.k for c in world.choices[-50:]]
    assert sum(k > 0 for k in bad) <= 5
    turned = True
    world.choices.clear()
    world.run(policy, 600)
    good = [c.k for c in world.choices[-50:]]
    assert sum(k > 0 for k in good) >= 40


def test_a_batch_shares_one_length_for_the_sum_of_its_requests() -> None:
    world = World(lambda position, match: 0.9, matches=lambda dice: (8, 16))
    policy = world.prepare(Adaptive(16, CURVE))
    world.run(policy, 400)
    alone = policy.choose([Prospect("a", 8, 16)], 100)
    beside = policy.choose([Prospect("a", 8, 16), *[Prospect(str(i), 0, 0) for i in range(7)]], 100)
    assert alone.k > 0
    assert beside.k < alone.k  # seven others would pay for rows that only one can use


def test_nothing_offered_is_a_plain_step() -> None:
    policy = World(lambda position, match: 0.9).prepare(Adaptive(16, CURVE))
    assert policy.choose([Prospect("a", 0, 0)], 10) == Choice(0, Reason.NOTHING)


def test_prices_follow_the_passes_and_not_the_pace() -> None:
    cost = RunningCost(CostCurve.of({1: 1.0, 5: 1.1}))
    for slow in [1.0] * 40 + [3.0] * 60:  # the machine slows down in the middle
        for rows in (1, 5):
            phase = Phase.PLAIN if rows == 1 else Phase.VERIFY
            passed = Pass(phase, rows, 1, 10, slow * (1.0 if rows == 1 else 1.6))
            cost.observe([passed], passed.seconds, drafted=rows - 1, light=True)
    plain = cost.plain(batch=1, context=10)
    wide = cost.drafting(4, batch=1, context=10, free=0, light=True)
    assert wide / plain == pytest.approx(1.6, rel=0.05)


@given(
    outcomes=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=60),
    match=st.none() | st.integers(1, 40),
    free=st.integers(0, 1),
)
@settings(max_examples=50)
def test_survival_never_rises_and_stays_a_probability(
    outcomes: list[tuple[int, int]], match: int | None, free: int
) -> None:
    survival = RunningSurvival()
    for drafted, accepted in outcomes:
        accepted = max(min(free, drafted), min(drafted, accepted))
        survival.observe("a", drafted=drafted, accepted=accepted, free=free, match=match)
        ahead = [1.0, *survival.ahead("a", 8, free=free, match=match)]
        assert len(ahead) == 9
        assert all(0.0 <= s <= before for before, s in pairwise(ahead))


def test_a_quick_curve_is_measured_where_none_is_given(verifier: Verifier) -> None:
    curve = quick_curve(verifier, 6)
    assert curve.widths == (1, 2, 3, 5, 6)
    small = tiny_verifier(max_position_embeddings=8)
    assert max(quick_curve(small, 17).widths) <= 8
    done = generate(small, [Request("a", (1, 2), 20)], drafter=NGram(), policy=Adaptive(4))
    assert len(next(iter(done)).tokens) == 6


def test_policies_by_name() -> None:
    assert isinstance(policy_named("adaptive"), Adaptive)
    assert policy_named("confidence", 3).longest == 3
    with pytest.raises(RecipeError, match="did you mean 'adaptive'"):
        policy_named("adaptiv")
    with pytest.raises(RecipeError, match="K = 0"):
        policy_named("fixed", 0)


def test_a_recipe_may_name_a_policy() -> None:
    recipe = BenchRecipe.model_validate({"k": "2,adaptive"})
    assert [c.name for c in recipe.configurations] == ["ngram-k2", "ngram-adaptive"]
    assert [c.k for c in recipe.configurations] == [2, 16]
    with pytest.raises(ValidationError):
        BenchRecipe.model_validate({"k": [2, "adaptiv"]})
    with pytest.raises(RecipeError, match="confidence or adaptive"):
        BenchRecipe.model_validate({"k": "2,adaptiv"})


def test_a_benchmark_of_a_policy_has_every_table(tmp_path: Path) -> None:
    configurations = [Configuration("ngram", 2), Configuration.of("ngram", "adaptive")]
    result = run_bench(loaded(), prompts(4), configurations, tmp_path, repeats=1, max_new_tokens=8)
    assert {p.config for p in result.performance} == {"ar", "ngram-k2", "ngram-adaptive"}
    assert all(audit.verdict == "equal" for audit in result.audits if audit.drafted)
    settings = {c["name"]: c["policy"] for c in result.description["configurations"][1:]}
    assert settings == {"ngram-k2": "fixed", "ngram-adaptive": "adaptive"}
    for outlook in outlooks(load_run(tmp_path)):
        assert (outlook.best is None) == (outlook.config == "ngram-adaptive")
