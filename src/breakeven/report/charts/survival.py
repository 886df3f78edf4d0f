"""How far drafts survive: the share of rounds whose first k drafts were all accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.report.charts.frame import Frame, left_margin
from breakeven.report.entries import Entry, Mark


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
    known = [(e, e.acceptance.survival) for e in entries if e.acceptance and e.acceptance.survival]
    if not known:
        return None
    longest = max(len(survival) for _, survival in known)
    narrow = width < 500
    left = left_margin((0, 1), 5, named=not narrow)
    margins = (14, 16, 44, left) if narrow else (16, 24, 46, left)
    across = (0.7, max(longest, 2) + 0.3)
    frame = Frame.of(width, 250 if narrow else 320, across, (0, 1), margins)
    lines = [
        Line(
            entry.name,
            entry.mark,
            [(frame.x(k), frame.y(min(1.0, s))) for k, s in enumerate(survival, start=1)],
            [f"{entry.name}, position {k}: {s:.1%}" for k, s in enumerate(survival, start=1)],
        )
        for entry, survival in known
    ]
    every = 1 if longest <= (8 if narrow else 20) else 2
    positions = [(frame.x(k), k) for k in range(1, longest + 1, every)]
    return SurvivalChart(frame, lines, positions)
