"""How much the rest of the machine disturbs a measurement.

A busy neighbour makes single passes up to twenty times slower, and a load average cannot tell it
from our own threads. The processor time that *other* processes used can.
"""

from __future__ import annotations

import os
import time

import psutil

from breakeven.measure.machine import load_1m, usable_cores

BUSY_SHARE = 0.15
"""Of the cores; above it a run is called disturbed."""
BUSY_LOAD = 0.75
"""Load per core above which a run is called badly timed before it starts."""


class Neighbours:
    """Processor time used by others since this was made."""

    def __init__(self) -> None:
        self._wall, self._others = time.monotonic(), _others_seconds()

    @property
    def cores(self) -> float:
        """Cores that other processes kept busy, on average."""
        wall = time.monotonic() - self._wall
        return max(0.0, _others_seconds() - self._others) / wall if wall > 0 else 0.0

    def warning(self) -> str | None:
        """A sentence if others took a share of the machine that spoils timings."""
        busy, cores = self.cores, usable_cores()
        if busy <= BUSY_SHARE * cores:
            return None
        return (
            f"other processes kept {busy:.1f} of {cores} cores busy during the run: times are "
            "not reliable; measure again on a quiet machine"
        )


def load_warning() -> str | None:
    """A sentence if the machine is already loaded."""
    load, cores = load_1m(), usable_cores()
    if load <= BUSY_LOAD * cores:
        return None
    return f"load is {load} on {cores} cores before the run: wait, or times will not be reliable"


def _others_seconds() -> float:
    """Processor seconds of all processes but this one since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    own = os.times()
    return float(sum(times) - idle - guest - own.user - own.system)
