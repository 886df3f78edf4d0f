"""How much the rest of the machine disturbs a measurement.

A busy neighbour makes single passes up to twenty times slower, and a load average cannot tell it
from our own threads. The processor time that *other* processes used on our processors can.
"""

from __future__ import annotations

import os
import time

import psutil
import torch

BUSY_SHARE = 0.15
"""Of the cores; less than that never matters."""
FULL = 0.9
"""Of the cores; others and our own threads together may use that much."""


class Neighbours:
    """Processor time used by others since this was made."""

    def __init__(self) -> None:
        self._wall, self._others = time.monotonic(), _others_seconds()

    @property
    def cores(self) -> float:
        """Cores that other processes kept busy, on average."""
        wall = time.monotonic() - self._wall
        return max(0.0, _others_seconds() - self._others) / wall if wall > 0 else 0.0


def disturbed(others: float) -> str | None:
    """A sentence if ``others`` busy cores are too many beside our threads on this machine."""
    return disturbance(others, torch.get_num_threads(), _physical(len(_ours())))


def disturbance(others: float, threads: int, cores: float) -> str | None:
    """A sentence if ``others`` busy cores and our ``threads`` are too much for ``cores``.

    >>> disturbance(1.4, threads=2, cores=2)
    'other processes kept 1.4 of 2 cores busy during the run: measure again on a quiet machine'
    >>> disturbance(10.0, threads=2, cores=64) is None  # there is room for all
    True
    """
    if others <= BUSY_SHARE * cores or others + threads <= FULL * cores:
        return None
    return (
        f"other processes kept {others:.1f} of {cores:.0f} cores busy during the run: "
        "measure again on a quiet machine"
    )


def busy_now(seconds: float = 0.5) -> str | None:
    """A sentence if other processes are busy at this moment, watched for ``seconds``.

    Not the load average: that would count what this process itself did just before.
    """
    neighbours = Neighbours()
    time.sleep(seconds)
    others, cores = neighbours.cores, _physical(len(_ours()))
    if disturbance(others, torch.get_num_threads(), cores) is None:
        return None
    return (
        f"other processes kept {others:.1f} of {cores:.0f} cores busy when measuring began: "
        "times may not be reliable"
    )


def _ours() -> list[int]:
    """The logical processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _physical(logical: int) -> float:
    """Physical cores behind so many logical processors of this machine."""
    total = os.cpu_count() or 1
    return logical * (psutil.cpu_count(logical=False) or total) / total


def _others_seconds() -> float:
    """Busy seconds of our processors since the machine started, without our own."""
    busy = 0.0
    every = psutil.cpu_times(percpu=True)
    for index in _ours():
        times = every[index] if index < len(every) else every[-1]
        idle = times.idle + getattr(times, "iowait", 0.0)
        guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        busy += sum(times) - idle - guest
    own = os.times()
    return float(busy - own.user - own.system)
