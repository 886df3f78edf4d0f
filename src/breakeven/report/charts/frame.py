"""Scales, ticks and the plotting area."""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDE = 800
"""Width of the desktop drawing, in CSS pixels."""
NARROW = 344
"""Width of the phone drawing: a 390 px screen less its margins."""

TICK = 7.0
"""Advance of a character of a tick label, in pixels; on the generous side, since fonts differ."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A gridline at pixel ``at`` with its label."""

    at: float
    text: str
    value: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Values ``low … high`` on pixels ``start … end`` (SVG's y grows downwards).

    >>> x = Scale(0, 10, 100, 200)
    >>> x(2.5), [tick.text for tick in x.ticks(5)]
    (125.0, ['0', '2', '4', '6', '8', '10'])
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixel of a value, to a tenth."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, about: int) -> list[Tick]:
        """Round values between low and high, roughly ``about`` of them."""
        step = round_step(self.low, self.high, about)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
        return [Tick(self(value), f"{value:.{digits}f}", value) for value in values]


def round_step(low: float, high: float, about: int) -> float:
    """1, 2 or 5 times a power of ten that divides ``low … high`` into about so many parts."""
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / about))
    return power * min(
        (1, 2, 5, 10), key=lambda factor: abs(math.log(span / about / power / factor))
    )


def rounded(low: float, high: float, about: int = 5) -> tuple[float, float]:
    """``low … high`` widened to whole steps.

    >>> rounded(0, 57.5)
    (0.0, 60.0)
    """
    step = round_step(low, high, about)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def left_margin(up: tuple[float, float], about: int, suffix: str = "", *, named: bool) -> int:
    """Pixels left of the plotting area for the tick labels of ``up``, and for the axis's name.

    Short labels get as much, so that charts below each other mostly begin at one edge.

    >>> left_margin((0, 2), 5, "×", named=True), left_margin((0, 60), 5, named=False)
    (56, 34)
    """
    labels = [tick.text + suffix for tick in Scale(*up, 0, 1).ticks(about)]
    widest = max(map(len, labels), default=0)
    needed = 8 + round(TICK * widest)
    return max(50, needed + 20) if named else max(34, needed)


@dataclass(frozen=True, slots=True)
class Frame:
    """A drawing of ``width`` × ``height`` with its plotting area and scales."""

    width: int
    height: int
    x: Scale
    y: Scale

    @classmethod
    def of(
        cls,
        width: int,
        height: int,
        x: tuple[float, float],
        y: tuple[float, float],
        margins: tuple[int, int, int, int],
    ) -> Frame:
        """Ranges of values and (top, right, bottom, left) margins."""
        top, right, bottom, left = margins
        across = Scale(*x, left, width - right)
        return cls(width, height, across, Scale(*y, height - bottom, top))

    @property
    def narrow(self) -> bool:
        """Whether this is the phone's drawing."""
        return self.width <= NARROW

    @property
    def left(self) -> float:
        """Left edge of the plotting area."""
        return self.x.start

    @property
    def right(self) -> float:
        """Right edge of the plotting area."""
        return self.x.end

    @property
    def top(self) -> float:
        """Top edge of the plotting area."""
        return self.y.end

    @property
    def bottom(self) -> float:
        """Bottom edge of the plotting area."""
        return self.y.start
