"""The interval of a speed ratio covers the truth as often as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from breakeven.measure.statistics import (
    Estimate,
    joint_intervals,
    mean_of_ratios,
    minimum_detectable_effect,
    paired_interval,
    prompts_to_decide,
    ratio_of_totals,
    spread,
)

Floats = NDArray[np.float64]


def sample(rng: np.random.Generator, prompts: int) -> tuple[Floats, Floats]:
    """Unequal prompts whose speed-up is skewed, as between kinds of text."""
    plain = np.exp(rng.normal(0.0, 0.5, prompts))
    return plain, plain / (1.0 + rng.gamma(4.0, 0.05, prompts))


def true_ratio() -> float:
    """The ratio of expected totals of :func:`sample`: length and speed-up are independent."""
    gains = 1.0 + np.random.default_rng(1).gamma(4.0, 0.05, 1_000_000)
    return float(1.0 / np.mean(1.0 / gains))


def percentile_interval(base: Floats, cand: Floats, rng: np.random.Generator) -> Floats:
    """The usual, simpler bootstrap, for comparison."""
    picks = rng.integers(0, len(base), (1000, len(base)))
    return np.quantile(base[picks].sum(1) / cand[picks].sum(1), [0.025, 0.975])


def test_the_interval_covers_the_truth_and_the_percentile_bootstrap_is_too_narrow() -> None:
    rng, truth, trials = np.random.default_rng(0), true_ratio(), 300
    ours, simple = 0, 0
    for trial in range(trials):
        base, cand = sample(rng, 8)
        found = paired_interval(base, cand, seed=trial, resamples=1000)
        ours += found.low <= truth <= found.high
        low, high = percentile_interval(base, cand, rng)
        simple += low <= truth <= high
    assert 0.90 <= ours / trials <= 0.99
    assert simple < ours
    assert simple / trials < 0.91


def excludes_one(found: Estimate) -> bool:
    return found.low > 1.0 or found.high < 1.0


def test_the_best_of_many_configurations_without_effect_is_rarely_a_finding() -> None:
    rng, trials, alone, together = np.random.default_rng(0), 300, 0, 0
    for trial in range(trials):
        base = np.exp(rng.normal(0.0, 0.5, 48))
        noise = np.exp(rng.normal(0.0, 0.1, (6, 48)) - 0.1**2 / 2)  # of mean 1
        pairs = [(base, base * own) for own in noise]
        settings = {"seed": trial, "resamples": 500}
        alone += any(excludes_one(paired_interval(*pair, **settings)) for pair in pairs)
        together += any(excludes_one(found) for found in joint_intervals(pairs, **settings))
    assert alone / trials > 0.2  # 1 - 0.95**6 = 0.26
    assert 0.02 <= together / trials <= 0.07


def test_configurations_that_move_together_cost_nothing() -> None:
    base, cand = sample(np.random.default_rng(0), 24)
    together = joint_intervals([(base, cand), (base, cand / 1.1), (base, cand * 1.3)])
    alone = paired_interval(base, cand)
    assert together[0] == alone
    assert together[1].low == pytest.approx(1.1 * alone.low)


@pytest.mark.parametrize("prompts", [2, 4, 12])
def test_joint_intervals_are_wider(prompts: int) -> None:
    rng = np.random.default_rng(0)
    base = np.exp(rng.normal(0.0, 0.5, prompts))
    pairs = [(base, base * np.exp(rng.normal(0.0, 0.1, prompts))) for _ in range(4)]
    for pair, together in zip(pairs, joint_intervals(pairs), strict=True):
        alone = paired_interval(*pair)
        assert together.low < alone.low < alone.value < alone.high < together.high


def test_a_known_ratio_is_found() -> None:
    rng = np.random.default_rng(0)
    base = np.exp(rng.normal(0.0, 0.5, 60))
    found = paired_interval(base, base / 1.2 * np.exp(rng.normal(0.0, 0.05, 60)))
    assert found.value == pytest.approx(1.2, abs=0.03)
    assert 1.1 < found.low < found.value < found.high < 1.3


def test_pairing_removes_what_prompts_have_in_common() -> None:
    rng = np.random.default_rng(0)
    base = np.exp(rng.normal(0.0, 1.0, 30))  # prompts differ by far more than 2 %
    noise = np.exp(rng.normal(0.0, 0.01, 30))
    found = paired_interval(base, base / 1.02 * noise)
    assert found.low > 1.0


def test_the_seed_decides() -> None:
    base, cand = sample(np.random.default_rng(0), 20)
    assert paired_interval(base, cand, seed=3) == paired_interval(base, cand, seed=3)
    assert paired_interval(base, cand, seed=3) != paired_interval(base, cand, seed=4)


@pytest.mark.parametrize("prompts", [2, 3, 4, 5])
def test_few_prompts_give_wide_intervals(prompts: int) -> None:
    base, cand = sample(np.random.default_rng(0), prompts)
    few = paired_interval(base, cand)
    many = paired_interval(*sample(np.random.default_rng(0), 50))
    assert few.low < few.value < few.high
    assert few.high - few.low > many.high - many.low


def test_intervals_of_few_prompts_stay_of_some_use_at_small_tails() -> None:
    """Resampled, the widest of these ends hundreds of times above where it begins."""
    rng = np.random.default_rng(0)
    found = [paired_interval(*sample(rng, n), compared=7) for n in (5, 8, 11) for _ in range(40)]
    assert max(e.high / e.low for e in found) < 5


def test_one_prompt_gives_no_interval() -> None:
    found = paired_interval(np.array([2.0]), np.array([1.0]))
    assert found.value == 2.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isnan(spread(np.array([2.0]), np.array([1.0])))


@given(
    st.lists(st.floats(0.1, 10.0), min_size=5, max_size=12),
    st.floats(0.2, 5.0),
    st.floats(0.1, 10.0),
)
def test_scale_does_not_matter(times: list[float], ratio: float, unit: float) -> None:
    base = np.array(times)
    cand = base[::-1] / ratio
    one, other = (paired_interval(base * u, cand * u, resamples=200) for u in (1.0, unit))
    assert one.value == pytest.approx(other.value)
    assert one.low == pytest.approx(other.low, rel=1e-6)
    assert one.low <= one.value <= one.high or one.low == pytest.approx(one.high)


def test_means_and_totals_differ_when_prompts_do() -> None:
    base, cand = np.array([1.0, 100.0]), np.array([0.5, 100.0])
    assert mean_of_ratios(base, cand) == 1.5
    assert ratio_of_totals(base, cand) == pytest.approx(1.005, abs=1e-3)


def test_detectable_effect_and_prompts_needed_are_inverse() -> None:
    effect = minimum_detectable_effect(0.15, 40)
    assert prompts_to_decide(0.15, 1 + effect) == pytest.approx(40, abs=1)
    assert minimum_detectable_effect(0.15, 160) < effect
    assert prompts_to_decide(0.15, 1.0) == math.inf
    assert prompts_to_decide(0.15, 0.9) < prompts_to_decide(0.15, 0.95)


def test_intervals_that_hold_at_once_are_wider() -> None:
    generator = np.random.default_rng(3)
    base = generator.uniform(1, 2, 10)
    candidate = base * generator.uniform(0.8, 1.2, 10)
    alone = paired_interval(base, candidate)
    several = paired_interval(base, candidate, compared=8)
    assert several.low < alone.low < several.value == alone.value < alone.high < several.high
    few = paired_interval(base[:3], candidate[:3], compared=8)
    assert few.high > paired_interval(base[:3], candidate[:3]).high
