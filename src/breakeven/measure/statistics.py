"""Confidence intervals of speed ratios, paired by prompt.

The unit of resampling is the prompt: two runs of one prompt are alike, two prompts are not. The
interval is a studentised bootstrap ("bootstrap-t") on the logarithm of the ratio of total times,
because with a few dozen prompts the percentile bootstrap is too narrow: in the simulation of
``tests/test_statistics.py`` it covers the truth in 87 % of cases at 8 prompts instead of 95 %.

Who tries many configurations and picks the best finds a gain by luck: of eight without any, one
has a 95 % interval above 1 in every fifth run. Joint intervals hold for all configurations at
once, hence for the best, whichever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TAIL = 0.025  # on each side of a 95 % interval
POWER = 0.8
FEW = 12  # prompts below which resampled intervals explode, above all at small tails


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; ``low`` and ``high`` are NaN where none can be given."""

    value: float
    low: float = math.nan
    high: float = math.nan


def ratio_of_totals(baseline: Floats, candidate: Floats) -> float:
    """How many times faster the candidate is: total baseline time over total candidate time.

    >>> ratio_of_totals(np.array([2.0, 4.0]), np.array([1.0, 3.0]))
    1.5
    """
    return float(baseline.sum() / candidate.sum())


def mean_of_ratios(baseline: Floats, candidate: Floats) -> float:
    """The mean over prompts of each prompt's own ratio; short prompts weigh as much as long.

    >>> mean_of_ratios(np.array([2.0, 4.0]), np.array([1.0, 4.0]))
    1.5
    """
    return float((baseline / candidate).mean())


def spread(baseline: Floats, candidate: Floats) -> float:
    """Standard deviation, over prompts, of what each adds to the log of the ratio of totals.

    Dividing it by the square root of the number of prompts gives the standard error (the delta
    method for a ratio of means). NaN below two prompts.
    """
    if len(baseline) < 2:
        return math.nan
    return float(_spread(baseline[None], candidate[None])[0])


def paired_interval(
    baseline: Floats, candidate: Floats, *, seed: int = 0, resamples: int = 5000, compared: int = 1
) -> Estimate:
    """The ratio of totals with its 95 % interval; see :func:`joint_intervals`.

    With ``compared`` intervals of different prompts, such as categories, each is widened
    (Bonferroni) so that all hold at once.

    >>> est = paired_interval(np.full(10, 2.0), np.full(10, 1.0))
    >>> est.value, est.low, est.high
    (2.0, 2.0, 2.0)
    """
    pairs = [(baseline, candidate)]
    [estimate] = joint_intervals(pairs, seed=seed, resamples=resamples, tail=TAIL / compared)
    return estimate


def joint_intervals(
    pairs: Sequence[tuple[Floats, Floats]],
    *,
    seed: int = 0,
    resamples: int = 5000,
    tail: float = TAIL,
) -> list[Estimate]:
    """Ratios of totals with intervals that all hold at once in 95 % of runs.

    Each pair is ``(baseline, candidate)``: seconds, one entry per prompt, the same prompts in the
    same order in all; ``tail`` is the chance of error on each side. The bounds come from the
    largest and the smallest studentised deviation of all pairs in the same resamples ("max-t"),
    so pairs that move together cost little. One prompt gives no interval; two to eleven, too few to
    resample, give Student's t after Bonferroni.
    """
    count = len(pairs[0][0])
    if count < 2:
        return [Estimate(ratio_of_totals(*pair)) for pair in pairs]
    if count < FEW:
        above = student_t(tail / len(pairs), count - 1)
        below = -above
    else:
        picks = np.random.default_rng(seed).integers(0, count, (resamples, count))
        deviations = np.stack([_studentised(*pair, picks) for pair in pairs])  # [m, R]
        below = float(np.quantile(deviations.min(axis=0), tail))
        above = float(np.quantile(deviations.max(axis=0), 1 - tail))
    return [_interval(*pair, below, above) for pair in pairs]


def student_t(tail: float, freedom: int) -> float:
    """What Student's t with ``freedom`` degrees of freedom exceeds with probability ``tail``.

    With ``t = sqrt(freedom) * tan(angle)`` the angle has the density ``cos(angle)^(freedom - 1)``.

    >>> [round(student_t(0.025, n), 2) for n in (1, 2, 3)]
    [12.71, 4.3, 3.18]
    """
    edges = np.linspace(-np.pi / 2, np.pi / 2, 100_001)
    middles = (edges[1:] + edges[:-1]) / 2
    mass = np.append(0.0, np.cumsum(np.cos(middles) ** (freedom - 1)))
    angle = np.interp(1 - tail, mass / mass[-1], edges)
    return float(math.sqrt(freedom) * np.tan(angle))


def minimum_detectable_effect(deviation: float, prompts: int, compared: int = 1) -> float:
    """The smallest gain or loss that ``prompts`` prompts show with 80 % power at 95 % confidence.

    ``deviation`` is the :func:`spread`, ``compared`` how many configurations are judged together.
    As a fraction: 0.06 means a ratio of 1.06.

    >>> round(minimum_detectable_effect(0.1, 24), 3)
    0.059
    """
    return math.expm1(_reach(compared) * deviation / math.sqrt(prompts))


def prompts_to_decide(deviation: float, ratio: float, compared: int = 1) -> float:
    """How many prompts would tell ``ratio`` from 1 with 80 % power; infinite when it is 1.

    >>> prompts_to_decide(0.1, 1.02), prompts_to_decide(0.1, 1.02, compared=6)
    (201, 309)
    """
    if ratio == 1.0:
        return math.inf
    return math.ceil((_reach(compared) * deviation / math.log(ratio)) ** 2)


def prompts_within(deviation: float, width: float, compared: int = 1) -> int:
    """How many prompts bring the interval of one ratio among ``compared`` to ± ``width`` of it.

    Never fewer than :data:`FEW`, below which resampled intervals are wider than this says.

    >>> prompts_within(0.3, 0.1), prompts_within(0.3, 0.1, compared=24), prompts_within(0.01, 0.1)
    (39, 94, 12)
    """
    sure = NormalDist().inv_cdf(1 - TAIL / compared)
    return max(FEW, math.ceil((sure * deviation / math.log1p(width)) ** 2))


def _reach(compared: int) -> float:
    """Standard errors from 1 at which an effect is found with 80 % power, after Bonferroni."""
    normal = NormalDist()
    return normal.inv_cdf(1 - TAIL / compared) + normal.inv_cdf(POWER)


def _spread(baseline: Floats, candidate: Floats) -> Floats:
    """``[R, n]`` resamples to ``[R]`` spreads."""
    share = baseline / baseline.mean(1, keepdims=True) - candidate / candidate.mean(
        1, keepdims=True
    )
    deviation: Floats = share.std(axis=1, ddof=1)
    return deviation


def _studentised(baseline: Floats, candidate: Floats, picks: NDArray[np.int64]) -> Floats:
    """``[R]``: (log ratio - truth) / standard error in each resample; 0 where all are alike."""
    base, cand = baseline[picks], candidate[picks]
    shift = np.log(base.sum(1) / cand.sum(1)) - math.log(ratio_of_totals(baseline, candidate))
    errors = _spread(base, cand) / math.sqrt(picks.shape[1])
    deviations: Floats = np.zeros_like(shift)
    np.divide(shift, errors, out=deviations, where=errors > 1e-12)
    return deviations


def _interval(baseline: Floats, candidate: Floats, below: float, above: float) -> Estimate:
    """The interval whose truth lies ``below .. above`` standard errors from the estimate."""
    value = ratio_of_totals(baseline, candidate)
    error = spread(baseline, candidate) / math.sqrt(len(baseline))
    return Estimate(value, value * math.exp(-above * error), value * math.exp(-below * error))
