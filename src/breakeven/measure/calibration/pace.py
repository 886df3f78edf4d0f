"""The machine's pace, round by round: what slowed a whole round is no property of its cells."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

C = TypeVar("C", bound=Hashable)

ACCIDENT = 4.0
"""Times the median: what takes longer is no property of what was timed."""


def paces(rounds: Sequence[Mapping[C, float]]) -> list[float]:
    """How long each round took beside the usual, over all its cells; 1 is usual.

    ``rounds`` give seconds by cell, the same cells in each. A machine that is busy for half of
    the time has two paces, and medians of single cells would mix them differently.

    >>> paces([{"a": 1.0, "b": 4.0}, {"a": 2.0, "b": 8.0}, {"a": 1.0, "b": 4.0}])
    [1.0, 2.0, 1.0]
    """
    usual = {cell: median(own[cell] for own in rounds) for cell in rounds[0]}
    return [median(seconds / usual[cell] for cell, seconds in own.items()) for own in rounds]


def usual_of(seconds: Iterable[float]) -> float:
    """The mean of all that did not take more than :data:`ACCIDENT` times the median.

    Answers take the *sum* of their rounds, so what is slow now and then counts as often as it is:
    wide passes have a longer tail than narrow ones, and without it they would look too cheap. But
    one pass in a hundred that was twenty times slower says nothing of the next hundred.

    >>> usual_of([1.0] * 11 + [2.0] * 9 + [40.0])
    1.45
    """
    every = list(seconds)
    most = ACCIDENT * median(every)
    return fmean(spent for spent in every if spent <= most)
