"""The cost curve C(W) / C(1), with the widths at which the configurations verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from breakeven.cost.curve import CostCurve
from breakeven.counting import counted
from breakeven.report.charts.frame import Frame, left_margin, rounded
from breakeven.report.entries import Entry, Mark

BESIDE = 14
"""Marks closer than about this, in pixels, are stacked."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One context length: the median line and the quartile band, in pixels."""

    name: str
    style: int
    points: list[tuple[float, float]]
    band: str
    titles: list[str]

    @property
    def path(self) -> str:
        """The points for an SVG polyline."""
        return " ".join(f"{x},{y}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class Used:
    """A configuration's mean verify width on the curve."""

    x: float
    y: float
    curve_y: float
    mark: Mark
    title: str


@dataclass(frozen=True, slots=True)
class CostChart:
    """What ``templates/charts/cost.svg.j2`` draws; ``widths`` are the ticks of W."""

    frame: Frame
    widths: list[tuple[float, int]]
    curves: list[Curve]
    used: list[Used]
    one: float


def cost_chart(curve: CostCurve, entries: Sequence[Entry], width: int) -> CostChart:
    """All contexts of one run's curve; ``entries`` are that run's."""
    narrow = width < 500
    widest = max(curve.widths[-1], 2)
    tallest = max(curve.relative(p.rows, p.context) * p.high / p.seconds for p in curve.points)
    across = (-0.15, log2(widest) + 0.15)
    up = rounded(0, max(1.5, tallest * 1.08))
    left = left_margin(up, 5, "×", named=not narrow)
    margins = (16, 12, 44, left) if narrow else (16, 16, 46, left)
    frame = Frame.of(width, 270 if narrow else 340, across, up, margins)
    widths = [(frame.x(power), 2**power) for power in range(int(log2(widest)) + 1)]
    curves = [_curve(curve, context, i, frame) for i, context in enumerate(curve.contexts)]
    return CostChart(frame, widths, curves, _used(curve, entries, frame), frame.y(1.0))


def _curve(curve: CostCurve, context: int, style: int, frame: Frame) -> Curve:
    points = [p for p in sorted(curve.points) if p.context == context]
    unit = curve.seconds(1, context)
    line = [(frame.x(log2(p.rows)), frame.y(p.seconds / unit)) for p in points]
    upper = [f"{frame.x(log2(p.rows))},{frame.y(p.high / unit)}" for p in points]
    lower = [f"{frame.x(log2(p.rows))},{frame.y(p.low / unit)}" for p in reversed(points)]
    titles = [
        f"context {context}, {counted(p.rows, 'row')}: {p.seconds / unit:.2f}× "
        f"({p.seconds * 1e3:.1f} ms)"
        for p in points
    ]
    return Curve(f"context {context} ({unit * 1e3:.1f} ms a row)", style, line,
                 " ".join(upper + lower), titles)  # fmt: skip


def _used(curve: CostCurve, entries: Sequence[Entry], frame: Frame) -> list[Used]:
    """Marks above the curve at the mean width, stacked where configurations have the same."""
    there: list[tuple[float, int]] = []
    found = []
    for entry in entries:
        rows = entry.mean_rows
        if rows > curve.widths[-1]:
            continue
        x = frame.x(log2(rows))
        taken = {height for other, height in there if abs(other - x) < BESIDE}
        height = next(h for h in range(len(entries)) if h not in taken)
        there.append((x, height))
        top = min(frame.y(curve.between(rows, context)) for context in curve.contexts)
        title = f"{entry.name} verified {rows:.1f} rows on average, {entry.verify_rows} at most"
        found.append(Used(x, top - 16 - 14 * height, top, entry.mark, title))
    return found
