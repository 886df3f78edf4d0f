"""Predicted against measured speed: where the points leave the band, the cost model is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from breakeven.measure.calibration.check import TARGET, Checked
from breakeven.report.charts.frame import Frame, left_margin, rounded
from breakeven.report.entries import Mark


@dataclass(frozen=True, slots=True)
class ForetoldPoint:
    """One configuration, in pixels; ``title`` is shown on hovering."""

    mark: Mark
    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class ForetoldChart:
    """What ``templates/charts/foretold.svg.j2`` draws.

    ``equal`` is the line where both speeds are the same, ``band`` what is within the target of it.
    """

    frame: Frame
    points: list[ForetoldPoint]
    equal: str
    band: str


def foretold_chart(
    checked: Sequence[Checked], marks: Mapping[str, Mark], width: int
) -> ForetoldChart:
    """``marks`` by drafter, as in the other charts of the page."""
    speeds = [speed for c in checked for speed in (c.predicted, c.measured)]
    low, high = rounded(0.95 * min(speeds), 1.05 * max(speeds), 6)
    narrow = width < 500
    left = left_margin((low, high), 6, "×", named=not narrow)
    margins = (14, 16, 44, left) if narrow else (16, 24, 46, left)
    frame = Frame.of(width, 300 if narrow else 380, (low, high), (low, high), margins)
    points = [
        ForetoldPoint(
            marks[c.config.rpartition("-k")[0]],
            frame.x(c.predicted),
            frame.y(c.measured),
            f"{c.config}: predicted {c.predicted:.2f}×, measured {c.measured:.2f}×",
        )
        for c in checked
    ]
    over, under = _line(frame, 1 / (1 - TARGET)), _line(frame, 1 / (1 + TARGET))
    ends = [(frame.x(value), frame.y(value)) for value in (high, low)]
    band = [*over, ends[0], *under[::-1], ends[1]]
    return ForetoldChart(frame, points, _path(_line(frame, 1.0)), _path(band))


def _line(frame: Frame, slope: float) -> list[tuple[float, float]]:
    """Where measured = ``slope`` × predicted enters and leaves the plotting area.

    A prediction is 5 % too high on the slope 1 / 1.05, and 5 % too low on 1 / 0.95.
    """
    low, high = frame.x.low, frame.x.high
    return [
        (frame.x(v), frame.y(slope * v)) for v in (max(low, low / slope), min(high, high / slope))
    ]


def _path(points: Sequence[tuple[float, float]]) -> str:
    """The points for an SVG polyline."""
    return " ".join(f"{x},{y}" for x, y in points)
