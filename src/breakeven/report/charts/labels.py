"""Put a name beside each point without covering points, lines or other names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CHAR = 7.4
"""Advance of a 12.5 px sans-serif character; on the generous side, since fonts differ."""
LINE = 16.0
"""Height of a line of text."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Shared area.

        >>> Box(0, 0, 2, 2).overlap(Box(1, 1, 5, 5))
        1
        """
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0, across) * max(0, down)

    def outside(self, bounds: Box) -> float:
        """Area of this box that lies outside ``bounds``."""
        area = (self.right - self.left) * (self.bottom - self.top)
        return area - self.overlap(bounds)

    @classmethod
    def around(cls, x: float, y: float, radius: float) -> Box:
        """The square around a point."""
        return cls(x - radius, y - radius, x + radius, y + radius)


@dataclass(frozen=True, slots=True)
class Label:
    """A text at (x, y) on its baseline, ``anchor`` as in SVG, and a line to its point if far."""

    text: str
    x: float
    y: float
    anchor: str = "start"
    leader: tuple[float, float, float, float] | None = None
    box: Box = Box(0, 0, 0, 0)


def column_for(names: Sequence[str], least: int, most: int) -> int:
    """Pixels that a column of names needs, within limits."""
    return min(most, max(least, 34 + round(CHAR * max(len(name) for name in names))))


def along(x1: float, y1: float, x2: float, y2: float) -> list[Box]:
    """Small boxes that cover a line, as obstacles."""
    steps = max(1, int(math.hypot(x2 - x1, y2 - y1) / 8))
    shares = [i / steps for i in range(steps + 1)]
    return [Box.around(x1 + (x2 - x1) * s, y1 + (y2 - y1) * s, 3) for s in shares]


def place(
    points: Sequence[tuple[float, float, str]], obstacles: Sequence[Box], bounds: Box
) -> list[Label]:
    """A label for every ``(x, y, text)``.

    Greedy: each in turn takes the spot nearest to its point that covers the least, among rings
    of directions.
    """
    taken = [*obstacles, *(Box.around(x, y, 8) for x, y, _ in points)]
    labels = []
    for x, y, text in points:
        spots = _spots(x, y, len(text) * CHAR)
        _, box = min(spots, key=lambda spot: spot[0] + _badness(spot[1], taken, bounds))
        taken.append(box)
        labels.append(_label(text, x, y, box))
    return labels


def place_on_line(text: str, y: float, obstacles: Sequence[Box], bounds: Box) -> Label:
    """A label right above or below a horizontal line, wherever it covers the least."""
    width = len(text) * CHAR
    room = max(0, int(bounds.right - bounds.left - width))
    spots = [
        (i * 0.1, Box(bounds.right - i - width, y + dy, bounds.right - i, y + dy + LINE))
        for dy in (-LINE - 4, 4)
        for i in range(0, room + 1, 6)
    ]
    _, box = min(spots, key=lambda spot: spot[0] + _badness(spot[1], obstacles, bounds))
    return Label(text, round(box.right, 1), round(box.bottom - 4, 1), "end", box=box)


def _spots(x: float, y: float, width: float) -> list[tuple[float, Box]]:
    """Candidate boxes with their distance from the point."""
    spots = []
    for reach in (10, 18, 30, 44, 60, 80):
        for turn in range(16):
            angle = 2 * math.pi * turn / 16
            across, down = math.cos(angle), math.sin(angle)
            middle_x = x + across * (reach + width / 2)
            middle_y = y + down * (reach + LINE / 2)
            left, top = middle_x - width / 2, middle_y - LINE / 2
            spots.append((reach + 4 * abs(down), Box(left, top, left + width, top + LINE)))
    return spots


def _badness(box: Box, taken: Sequence[Box], bounds: Box) -> float:
    return 5 * box.outside(bounds) + sum(2 * box.overlap(other) for other in taken)


def _label(text: str, x: float, y: float, box: Box) -> Label:
    """Anchored at the end nearer to the point, so that a narrower font stays near it."""
    if box.left >= x:
        at, anchor = box.left, "start"
    elif box.right <= x:
        at, anchor = box.right, "end"
    else:
        at, anchor = (box.left + box.right) / 2, "middle"
    near_x, near_y = min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)
    gap = math.hypot(near_x - x, near_y - y)
    leader = None
    if gap > 16:
        start = (x + (near_x - x) * 8 / gap, y + (near_y - y) * 8 / gap)
        leader = (round(start[0], 1), round(start[1], 1), round(near_x, 1), round(near_y, 1))
    return Label(text, round(at, 1), round(box.bottom - 4, 1), anchor, leader, box)
