"""Ratios with their 95 % intervals: a forest plot over configurations, or over categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.report.charts.frame import Frame, rounded
from breakeven.report.charts.labels import column_for
from breakeven.report.entries import Entry, Mark
from breakeven.report.records import Performance
from breakeven.report.wording import clip

WIDEST = 2.0
"""An interval that reaches further than this times its ratio, or this part of it, is cut."""


@dataclass(frozen=True, slots=True)
class Whisker:
    """One interval; ``side`` says where it lies: ``above``, ``below`` or ``across`` 1."""

    name: str
    mark: Mark
    y: float
    x: float
    low: float
    high: float
    caps: str  # path of the ends: a bar, an arrow where the interval goes on, none without one
    text: str
    side: str


@dataclass(frozen=True, slots=True)
class RatioChart:
    """What ``templates/charts/ratios.svg.j2`` draws."""

    title: str
    frame: Frame
    whiskers: list[Whisker]
    one: float
    mark: Mark | None = None


def ratio_chart(entries: Sequence[Entry], width: int) -> RatioChart | None:
    """All configurations over all categories, fastest first; None without ratios."""
    rows = [
        (entry.name, entry.mark, row) for entry in entries if (row := entry.speed) and row.ratio
    ]
    rows.sort(key=lambda row: -(row[2].ratio or 0))
    return _chart("", rows, width, _range([row for *_, row in rows])) if rows else None


def category_charts(entries: Sequence[Entry], width: int) -> list[RatioChart]:
    """One small chart for each configuration, all on one scale.

    An interval that says nothing is left out, and its ratio stands alone.
    """
    groups = {
        entry.name: (entry, [_telling(r) for r in entry.by_category if r.ratio])
        for entry in entries
    }
    every = [row for _, rows in groups.values() for row in rows]
    if not every:
        return []
    across = _range(every)
    return [
        _chart(name, [(row.category, entry.mark, row) for row in rows], width, across, entry.mark)
        for name, (entry, rows) in groups.items()
        if rows
    ]


def _range(rows: Sequence[Performance]) -> tuple[float, float]:
    """The axis: every ratio, and of its interval what is within a factor of :data:`WIDEST`."""
    values = [0.9, 1.1]
    for row in rows:
        ratio = row.ratio or 1.0
        low, high = _ends(row)
        values += [ratio, max(low, ratio / WIDEST), min(high, ratio * WIDEST)]
    return rounded(min(values), max(values), 6)


def _telling(row: Performance) -> Performance:
    """The row without an interval that says nothing."""
    unknown = {"ratio_low": None, "ratio_high": None}
    return row.model_copy(update=unknown) if row.says_nothing else row


def _ends(row: Performance) -> tuple[float, float]:
    """The interval, or the ratio alone where there is none."""
    ratio = row.ratio or 1.0
    return row.ratio_low or ratio, row.ratio_high or ratio


def _cap(x: float, y: float, limits: tuple[float, float]) -> tuple[float, str]:
    """Where an end is drawn, and how: beyond the axis it is an arrow at the edge."""
    first, last = limits
    if x < first - 1:
        return first, f"M{first + 6} {y - 5}L{first} {y}l6 5"
    if x > last + 1:
        return last, f"M{last - 6} {y - 5}L{last} {y}l-6 5"
    return x, f"M{x} {y - 5}v10"


def _chart(
    title: str,
    rows: Sequence[tuple[str, Mark, Performance]],
    width: int,
    across: tuple[float, float],
    mark: Mark | None = None,
) -> RatioChart:
    narrow = width < 500
    stacked = narrow and not title
    step, top = (46, 32) if stacked else (23, 8) if title else (34, 32)
    names = [name for name, *_ in rows]
    left = 6 if stacked else column_for(names, 90, 130) if narrow else column_for(names, 150, 300)
    longest = 24 if stacked else 16 if narrow else 36
    right = 6 if stacked else 52 if narrow else 150
    height = top + step * len(rows) + 34
    frame = Frame.of(width, height, across, (0, 1), (top, right, 30, left))
    whiskers = []
    for i, (name, row_mark, row) in enumerate(rows):
        ratio, (low, high) = row.ratio or 0.0, _ends(row)
        side = "above" if low > 1 else "below" if high < 1 else "across"
        text = f"{ratio:.2f}×" if title else f"{ratio:.2f}× ({low:.2f}–{high:.2f})"
        y = top + step * (i + 0.5) + (8 if stacked else 0)
        limits = frame.x(across[0]), frame.x(across[1])
        (x_low, left_cap), (x_high, right_cap) = (_cap(frame.x(v), y, limits) for v in (low, high))
        x, caps = frame.x(ratio), left_cap + right_cap
        if row.ratio_low is None:
            caps, side = "", "across"
        whiskers.append(
            Whisker(clip(name, longest), row_mark, y, x, x_low, x_high, caps, text, side)
        )
    return RatioChart(title, frame, whiskers, frame.x(1.0), mark)
