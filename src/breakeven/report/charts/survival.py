"""How far drafts survive: of the rounds that drafted k tokens, those that had all k accepted.

A round that drafted less says nothing of position k, so policies and lookups that draft little are
not drawn as if they had been rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.counting import counted
from breakeven.report.charts.frame import Frame, left_margin
from breakeven.report.entries import Entry, Mark
from breakeven.report.records import Acceptance

FEWEST = 10
"""Where fewer rounds drafted so far, a line ends: their share is chance."""


@dataclass(frozen=True, slots=True)
class Line:
    """One configuration: its points in pixels."""

    name: str
    mark: Mark
    points: list[tuple[float, float]]
    titles: list[str]

    @property
    def path(self) -> str:
        """The points for an SVG polyline."""
        return " ".join(f"{x},{y}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class SurvivalChart:
    """What ``templates/charts/survival.svg.j2`` draws."""

    frame: Frame
    lines: list[Line]
    positions: list[tuple[float, int]]


def survival_chart(entries: Sequence[Entry], width: int) -> SurvivalChart | None:
    """None when no survival was measured."""
    known = [(e, points) for e in entries if e.acceptance and (points := survivors(e.acceptance))]
    if not known:
        return None
    longest = max(len(points) for _, points in known)
    narrow = width < 500
    left = left_margin((0, 1), 5, named=not narrow)
    margins = (14, 16, 44, left) if narrow else (16, 24, 46, left)
    across = (0.7, max(longest, 2) + 0.3)
    frame = Frame.of(width, 250 if narrow else 320, across, (0, 1), margins)
    lines = [
        Line(
            entry.name,
            entry.mark,
            [(frame.x(k), frame.y(share)) for k, (share, _) in enumerate(points, start=1)],
            [
                f"{entry.name}, position {k}: {share:.1%} of the {counted(rounds, 'round')} that "
                f"drafted so far"
                for k, (share, rounds) in enumerate(points, start=1)
            ],
        )
        for entry, points in known
    ]
    every = 1 if longest <= (8 if narrow else 20) else 2
    positions = [(frame.x(k), k) for k in range(1, longest + 1, every)]
    return SurvivalChart(frame, lines, positions)


def survivors(found: Acceptance) -> list[tuple[float, int]]:
    """For k = 1, 2 …: of the rounds that drafted k tokens the share with all accepted; how many.

    Files without ``drafted_k`` are taken to have drafted everything in every round.

    >>> survivors(Acceptance(config="x", category="all", rounds=100, survival=(0.4, 0.2, 0.0),
    ...                      reached=(0.5, 0.2, 0.01)))
    [(0.8, 50), (1.0, 20)]
    """
    reached = found.reached or (1.0,) * len(found.survival)
    least = max(1, min(FEWEST, found.rounds))
    points: list[tuple[float, int]] = []
    for survival, share in zip(found.survival, reached, strict=False):
        rounds = round(share * found.rounds)
        if rounds < least:
            break
        points.append((min(1.0, survival / share), rounds))
    return points
