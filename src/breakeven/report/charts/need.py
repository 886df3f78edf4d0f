"""The acceptance length each drafter needs, by K: its break-even, below the most it can commit."""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.cost.calibration import Calibration
from breakeven.report.charts.frame import Frame, left_margin, rounded
from breakeven.report.charts.survival import Line
from breakeven.report.entries import Mark


@dataclass(frozen=True, slots=True)
class NeedChart:
    """What ``templates/charts/need.svg.j2`` draws.

    ``most`` are the ends of the line K + 1, in pixels: what a round commits when every draft is
    right. ``one`` is the height of plain decoding, one token a step.
    """

    frame: Frame
    lines: list[Line]
    positions: list[tuple[float, int]]
    most: tuple[tuple[float, float], tuple[float, float]]
    one: float


def need_chart(found: Calibration, width: int) -> NeedChart | None:
    """None when no drafter was measured."""
    if not found.drafters:
        return None
    needs = {
        name: {k: found.round_cost(name, k).break_even for k in found.draft_lengths(name)}
        for name in found.drafters
    }
    longest = max(max(own) for own in needs.values())
    highest = max(max(own.values()) for own in needs.values())
    narrow = width < 500
    across = (0.7, max(longest, 2) + 0.3)
    up = rounded(0, max(2.5, min(highest * 1.1, longest + 1.5)))
    left = left_margin(up, 6, named=not narrow)
    margins = (14, 16, 44, left) if narrow else (16, 24, 46, left)
    frame = Frame.of(width, 270 if narrow else 340, across, up, margins)
    lines = [_line(name, own, Mark.number(i), frame) for i, (name, own) in enumerate(needs.items())]
    ends = across[0], min(across[1], up[1] - 1)
    begin, end = ((frame.x(k), frame.y(k + 1)) for k in ends)
    ticks = sorted({k for own in needs.values() for k in own})
    places = [(frame.x(k), k) for k in ticks]
    return NeedChart(frame, lines, places, (begin, end), frame.y(1.0))


def _line(name: str, own: dict[int, float], mark: Mark, frame: Frame) -> Line:
    within = {k: min(need, frame.y.high) for k, need in own.items()}
    points = [(frame.x(k), frame.y(need)) for k, need in within.items()]
    titles = [f"{name}, K = {k}: needs {need:.2f} tokens a round" for k, need in own.items()]
    return Line(name, mark, points, titles)
