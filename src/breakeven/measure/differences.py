"""Differences of acceptance lengths, paired by prompt, with intervals that hold all at once.

An acceptance length is a ratio of totals: tokens committed over rounds. Two drafters on the same
prompts move together (an easy prompt is easy for both), so their difference is resampled prompt
by prompt, and its interval is much narrower than the two intervals side by side suggest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from breakeven.measure.statistics import FEW, TAIL, Estimate, Floats, student_t


@dataclass(frozen=True, slots=True)
class Totals:
    """What a ratio of totals is made of: one entry per prompt, in the same order for all."""

    parts: Floats
    wholes: Floats

    @property
    def ratio(self) -> float:
        """Sum of the parts over the sum of the wholes."""
        return float(self.parts.sum() / self.wholes.sum())


Pair = tuple[Totals, Totals]


def joint_differences(
    pairs: Sequence[Pair], *, seed: int = 0, resamples: int = 5000
) -> list[Estimate]:
    """``ratio of the first - ratio of the second`` of each pair, with 95 % intervals.

    The intervals hold for all pairs at once ("max-t" of a studentised bootstrap), so the largest
    of many differences is not large by luck. One prompt gives no interval; two to eleven give
    Student's t after Bonferroni.

    >>> ones = np.ones(8)
    >>> [d] = joint_differences([(Totals(3 * ones, ones), Totals(2 * ones, ones))])
    >>> d.value, d.low, d.high
    (1.0, 1.0, 1.0)
    """
    if not pairs:
        return []
    count = len(pairs[0][0].parts)
    values = [first.ratio - second.ratio for first, second in pairs]
    if count < 2:
        return [Estimate(value) for value in values]
    if count < FEW:
        above = student_t(TAIL / len(pairs), count - 1)
        below = -above
    else:
        picks = np.random.default_rng(seed).integers(0, count, (resamples, count))
        deviations = np.stack([_studentised(pair, picks) for pair in pairs])  # [m, R]
        below = float(np.quantile(deviations.min(axis=0), TAIL))
        above = float(np.quantile(deviations.max(axis=0), 1 - TAIL))
    errors = [_error(pair, np.arange(count)[None])[0] for pair in pairs]
    return [
        Estimate(value, float(value - above * error), float(value - below * error))
        for value, error in zip(values, errors, strict=True)
    ]


def _studentised(pair: Pair, picks: NDArray[np.int64]) -> Floats:
    """``[R]``: (difference - truth) / standard error in each resample; 0 where all are alike."""
    first, second = (t.parts[picks].sum(1) / t.wholes[picks].sum(1) for t in pair)
    shift = first - second - (pair[0].ratio - pair[1].ratio)
    errors = _error(pair, picks)
    deviations: Floats = np.zeros_like(shift)
    np.divide(shift, errors, out=deviations, where=errors > 1e-12)
    return deviations


def _error(pair: Pair, picks: NDArray[np.int64]) -> Floats:
    """``[R]`` standard errors of the difference (the delta method for ratios of means)."""
    first, second = (_influence(totals, picks) for totals in pair)
    error: Floats = (first - second).std(axis=1, ddof=1) / math.sqrt(picks.shape[1])
    return error


def _influence(totals: Totals, picks: NDArray[np.int64]) -> Floats:
    """``[R, n]``: by how much each prompt pulls the ratio away from its value."""
    parts, wholes = totals.parts[picks], totals.wholes[picks]
    ratio = parts.sum(1, keepdims=True) / wholes.sum(1, keepdims=True)
    pull: Floats = (parts - ratio * wholes) / wholes.mean(1, keepdims=True)
    return pull
