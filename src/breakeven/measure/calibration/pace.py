"""The machine's pace, round by round: what slowed a whole round is no property of its cells."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

C = TypeVar("C", bound=Hashable)


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
    """The mean without the tenth at either end.

    Answers take the *sum* of their rounds, so half-slow counts half; but not one pass in a hundred
    that was twenty times slower.

    >>> usual_of([1.0] * 10 + [2.0] * 9 + [40.0])
    1.5
    """
    ordered = sorted(seconds)
    tenth = len(ordered) // 10
    return fmean(ordered[tenth : len(ordered) - tenth])
