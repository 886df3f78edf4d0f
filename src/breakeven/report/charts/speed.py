"""Acceptance length against speed, with plain decoding as the line to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.report.charts.frame import Frame, left_margin, rounded
from breakeven.report.charts.labels import Box, Label, along, place, place_on_line
from breakeven.report.entries import Entry, Mark
from breakeven.report.wording import clip

MOST_NARROW = 6
"""Names that fit beside their marks on a phone."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A configuration; ``need_x`` is where, at its price, it would meet plain decoding."""

    x: float
    y: float
    need_x: float
    line_y: float
    mark: Mark
    title: str
    name: str


@dataclass(frozen=True, slots=True)
class SpeedChart:
    """What ``templates/charts/speed.svg.j2`` draws.

    ``labels`` are in the order of ``dots``, or empty where so many would not fit: then a legend
    names the marks.
    """

    frame: Frame
    dots: list[Dot]
    labels: list[Label]
    plain: Label
    plain_x: float
    plain_y: float


@dataclass(frozen=True, slots=True)
class _Known:
    """The figures of a configuration that has them all."""

    entry: Entry
    length: float
    speed: float
    need: float
    plain: float


def speed_chart(entries: Sequence[Entry], width: int) -> SpeedChart | None:
    """None when no configuration has both an acceptance length and a speed."""
    known = [found for entry in entries if (found := _known(entry))]
    if not known:
        return None
    frame = _frame(known, width)
    dots = [
        Dot(
            frame.x(k.length),
            frame.y(k.speed),
            frame.x(k.need),
            frame.y(k.plain),
            k.entry.mark,
            f"{k.entry.name}: AL {k.length:.2f}, {k.speed:.1f} tok/s, break-even AL {k.need:.2f}",
            clip(k.entry.name, 24 if frame.narrow else 40),
        )
        for k in known
    ]
    plain_y = frame.y(known[0].plain)
    needs = [box for d in dots for box in along(d.x, d.y, d.need_x, d.line_y)]
    needs += [Box.around(d.need_x, d.line_y, 7) for d in dots]
    across = {Box(frame.left, d.line_y - 3, frame.right, d.line_y + 3) for d in dots}
    obstacles = [*needs, *across, Box.around(frame.x(1), plain_y, 8)]
    bounds = Box(frame.left + 4, frame.top, frame.right - 4, frame.bottom - 2)
    named = [] if frame.narrow and len(dots) > MOST_NARROW else dots
    labels = place([(d.x, d.y, d.name) for d in named], obstacles, bounds)
    text = f"plain{'' if frame.narrow else ' decoding'}: {known[0].plain:.1f} tok/s"
    covered = needs + [Box.around(d.x, d.y, 8) for d in dots] + [label.box for label in labels]
    plain = place_on_line(text, plain_y, covered, bounds)
    return SpeedChart(frame, dots, labels, plain, frame.x(1), plain_y)


def _known(entry: Entry) -> _Known | None:
    row, plain = entry.speed, entry.run.plain
    if row is None or plain is None or not plain.tokens_per_s:
        return None
    if not row.tokens_per_s or not row.acceptance_length:
        return None
    need = row.break_even or row.acceptance_length * plain.tokens_per_s / row.tokens_per_s
    return _Known(entry, row.acceptance_length, row.tokens_per_s, need, plain.tokens_per_s)


def _frame(known: Sequence[_Known], width: int) -> Frame:
    narrow = width < 500
    longest = max(1.2, *(x for k in known for x in (k.length, k.need)))
    speeds = [x for k in known for x in (k.speed, k.plain)]
    across = (0.85, longest + 0.08 * (longest - 0.85))
    low = min(speeds) - 0.25 * (max(speeds) - min(speeds)) - 0.05 * max(speeds)
    up = rounded(max(0.0, low), max(speeds) * 1.03)
    left = left_margin(up, 5, named=not narrow)
    margins = (18, 10, 44, left) if narrow else (16, 12, 46, left)
    return Frame.of(width, 310 if narrow else 400, across, up, margins)
