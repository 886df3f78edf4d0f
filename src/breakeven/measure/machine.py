"""What the measuring machine is: every figure is printed beside these facts.

A ratio measured on a busy machine, or with more threads than cores, says little: load and
threads are therefore recorded at the start and at the end of every run.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import psutil
import torch

FLAGS = {
    "avx2": ("avx2",),
    "avx512": ("avx512f",),
    "avx512_bf16": ("avx512_bf16",),
    "amx": ("amx_tile",),
    "neon": ("neon", "asimd"),
}
"""Instruction sets that matter for speed, and the names the system gives them."""

_CPUINFO = Path("/proc/cpuinfo")
_QUOTAS = (  # control groups, version 2 ("quota period") and version 1 (two files)
    (Path("/sys/fs/cgroup/cpu.max"), None),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)


def machine_facts() -> dict[str, str | int | float | None]:
    """The ``machine`` fields of ``configuration.json`` (docs/formats.md).

    ``load_1m_end`` equals ``load_1m_start`` here; whoever measures overwrites it with
    :func:`load_1m` when done.

    >>> sorted(machine_facts())
    ['cores', 'cpu', 'gpu', 'load_1m_end', 'load_1m_start', 'python', 'threads', 'torch']
    """
    load = load_1m()
    return {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "gpu": gpu_name(),
        "load_1m_start": load,
        "load_1m_end": load,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    """The processor's marketing name, e.g. ``AMD EPYC 7763``."""
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def cpu_flags() -> dict[str, bool]:
    """Which of :data:`FLAGS` this processor has."""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    words = set(found[1].split()) if found else set()
    if not words and platform.machine() == "arm64":  # macOS has no /proc/cpuinfo
        words = {"neon"}
    return {flag: not words.isdisjoint(names) for flag, names in FLAGS.items()}


def usable_cores() -> int:
    """Physical cores this process may use: affinity and container quota included."""
    physical = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        physical = min(physical, len(os.sched_getaffinity(0)))
    quota = cpu_quota()
    return max(1, min(physical, round(quota))) if quota is not None else physical


def cpu_quota() -> float | None:
    """Processors that the container's control group grants, or None without a limit."""
    for quota_file, period_file in _QUOTAS:
        try:
            words = quota_file.read_text().split()
            if period_file is not None:
                words += period_file.read_text().split()
        except OSError:
            continue
        if len(words) == 2 and words[0] not in ("max", "-1"):
            return int(words[0]) / int(words[1])
    return None


def load_1m() -> float:
    """Processes that wanted to run, averaged over the last minute (this one included)."""
    return round(psutil.getloadavg()[0], 2)


def gpu_name() -> str | None:
    """The first CUDA device's name, or None."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def _cpuinfo() -> str:
    try:
        return _CPUINFO.read_text()
    except OSError:
        return ""
