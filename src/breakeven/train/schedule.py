"""How far training is, and what the learning rate is there.

A run ends after so many steps or so many minutes, whichever comes first; warm-up and cosine
follow the same measure, so the rate has decayed when the time is up. With steps alone the rate
is a function of the step, and a resumed run is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """``warmup`` is the share of the run in which the rate rises.

    >>> schedule = Schedule(steps=10, minutes=None, warmup=0.2)
    >>> [round(schedule.factor(step, 0.0), 3) for step in (0, 1, 2, 5, 9)]
    [0.25, 0.75, 0.99, 0.598, 0.01]
    """

    steps: int
    minutes: float | None
    warmup: float

    def done(self, step: int, elapsed_s: float) -> float:
        """The share of the run that lies behind, in 0-1."""
        by_time = elapsed_s / (60 * self.minutes) if self.minutes else 0.0
        return min(1.0, max(step / self.steps, by_time))

    def factor(self, step: int, elapsed_s: float) -> float:
        """What to multiply the learning rate with at a step, taken at its middle."""
        at = min(1.0, self.done(step, elapsed_s) + 0.5 / self.steps)
        if at < self.warmup:
            return at / self.warmup
        rest = (at - self.warmup) / (1.0 - self.warmup)
        return 0.5 * (1.0 + math.cos(math.pi * rest))
