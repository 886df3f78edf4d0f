"""What a round costs (stacked bars, in plain steps) and what it earns (a diamond, in tokens)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.report.charts.frame import Frame
from breakeven.report.charts.labels import column_for
from breakeven.report.entries import Entry, Mark
from breakeven.report.wording import clip

ROOM = 36
"""Pixels a value needs inside its segment."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar; ``text`` is empty where it would not fit."""

    kind: str
    x: float
    width: float
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A configuration's round, or plain decoding's step (``mark`` None).

    ``end`` is where the cost ends, ``earned`` where the earnings do.
    """

    name: str
    mark: Mark | None
    y: float
    segments: list[Segment]
    end: float
    earned: float
    text: str

    @property
    def pays(self) -> bool:
        """Whether it earns more than it costs."""
        return self.earned > self.end


@dataclass(frozen=True, slots=True)
class PriceChart:
    """What ``templates/charts/price.svg.j2`` draws."""

    frame: Frame
    bars: list[Bar]
    one: float


def price_chart(entries: Sequence[Entry], width: int) -> PriceChart | None:
    """Best earner for its price first; None when no prices were measured."""
    rows = [(entry, row) for entry in entries if (row := entry.speed) and row.break_even]
    if not rows:
        return None
    rows.sort(key=lambda pair: -(pair[1].acceptance_length or 0) / (pair[1].break_even or 1))
    narrow = width < 500
    step, top = (66, 30) if narrow else (50, 30)
    height = top + step * (len(rows) + 1) + 44
    most = max(max(row.break_even or 0, row.acceptance_length or 0) for _, row in rows)
    left = 6 if narrow else column_for([entry.name for entry, _ in rows], 150, 300)
    margins = (top, 12, 44, 6) if narrow else (top, 20, 44, left)
    frame = Frame.of(width, height, (0, max(1.0, most) * 1.04), (0, 1), margins)
    bars = [_bar(frame, "plain decoding", None, (0.0, 1.0, 0.0), 1.0, top)]
    for i, (entry, row) in enumerate(rows, start=1):
        cost = (row.c_d or 0.0, row.c_v or 0.0, row.c_s or 0.0)
        earned = row.acceptance_length or 0.0
        bars.append(_bar(frame, entry.name, entry.mark, cost, earned, top + step * i))
    return PriceChart(frame, bars, frame.x(1))


def _bar(
    frame: Frame,
    name: str,
    mark: Mark | None,
    cost: tuple[float, float, float],
    earned: float,
    y: float,
) -> Bar:
    segments, start = [], 0.0
    kinds = ("draft", "verify", "other") if mark else ("draft", "plain", "other")
    for kind, value in zip(kinds, cost, strict=True):
        x, end = frame.x(start), frame.x(start + value)
        text = f"{value:.2f}" if end - x >= ROOM else ""
        if value > 0:
            title = f"{name}: {kind} {value:.2f} plain steps"
            segments.append(Segment(kind, x, round(end - x, 1), text, title))
        start += value
    text = f"costs {start:.2f} plain steps, earns {earned:.2f} tokens"
    return Bar(clip(name, 36), mark, y, segments, frame.x(start), frame.x(earned), text)
