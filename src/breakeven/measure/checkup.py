"""A look at the installation: what is there, what stands in the way, what to do about it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from huggingface_hub.constants import HF_HUB_CACHE

import breakeven
from breakeven.measure import machine, packages
from breakeven.verifier.native import library
from breakeven.verifier.places import cache_folder
from breakeven.verifier.sources import BUNDLED, converted_models

GIB = 1 << 30
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that stands in the way; ``blocks`` when the bundled model cannot run.

    What is ``optional`` stands in nobody's way: it is only said.
    """

    what: str
    remedy: str
    blocks: bool = False
    optional: bool = False

    @property
    def sign(self) -> str:
        """What stands before its line."""
        return "✗" if self.blocks else "·" if self.optional else "!"


Report = dict[str, Any]


def look() -> Report:
    """Everything :func:`problems` and ``breakeven doctor`` speak of, ready for JSON."""
    memory = psutil.virtual_memory()
    return {
        "breakeven": breakeven.__version__,
        "machine": machine.machine_facts(),
        "flags": machine.cpu_flags(),
        "logical_cpus": os.cpu_count() or 1,
        "environment": {
            name: os.environ.get(name)
            for name in (
                "OMP_NUM_THREADS",
                "MKL_NUM_THREADS",
                "HF_HUB_OFFLINE",
                "BREAKEVEN_CACHE",
                library.SWITCH,
            )
        },
        "governor": GOVERNOR.read_text().strip() if GOVERNOR.is_file() else None,
        "memory": {"total": memory.total, "available": memory.available},
        "disk_free": shutil.disk_usage(Path.cwd()).free,
        "gpu": {
            "torch_cuda": torch.version.cuda,
            "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            "driver": Path("/proc/driver/nvidia/version").is_file(),
        },
        "caches": {
            "breakeven": _folder(cache_folder()),
            "hugging_face": _folder(Path(HF_HUB_CACHE)),
        },
        "models": [_folder(path) for path in converted_models()],
        "native": _native(),
        "bundled": {name: _installed(package) for name, (package, *_) in BUNDLED.items()},
        "extras": {
            extra: {name: packages.version(name) for name in names}
            for extra, names in packages.declared().items()
        },
    }


def problems(report: Report) -> list[Problem]:
    """What stands in the way according to a :func:`look`, the worst first."""
    found = [problem for check in CHECKS for problem in check(report)]
    return sorted(found, key=lambda problem: (not problem.blocks, problem.optional))


def _missing_packages(report: Report) -> Iterator[Problem]:
    for extra, versions in report["extras"].items():
        missing = ", ".join(name for name, version in versions.items() if version is None)
        if missing and extra not in ("dev", "docs"):
            what = f"not installed{' (optional)' if extra else ''}: {missing}"
            target = f"'breakeven[{extra}]'" if extra else "breakeven"
            yield Problem(what, f"pip install {target}", blocks=not extra, optional=bool(extra))


def _missing_model(report: Report) -> Iterator[Problem]:
    for name, present in report["bundled"].items():
        if not present:
            yield Problem(f"the bundled model {name} is not installed", BUNDLED[name][2], True)


def _busy(report: Report) -> Iterator[Problem]:
    facts = report["machine"]
    if facts["load_1m_start"] > 0.5 * facts["cores"]:
        yield Problem(
            f"the machine is busy: load {facts['load_1m_start']} on {facts['cores']} cores",
            "measure when it is quiet; one busy process can make a pass 20 times slower",
        )
    if report["governor"] == "powersave":
        yield Problem(
            "the processor saves power, so its speed varies",
            "sudo cpupower frequency-set -g performance",
        )


def _threads(report: Report) -> Iterator[Problem]:
    facts = report["machine"]
    if facts["threads"] > facts["cores"]:
        yield Problem(
            f"{facts['threads']} threads on {facts['cores']} usable cores hinder each other",
            f"export OMP_NUM_THREADS={facts['cores']}",
        )
    elif facts["threads"] < facts["cores"]:
        yield Problem(
            f"only {facts['threads']} of {facts['cores']} cores are used",
            "unset OMP_NUM_THREADS, or give --threads",
        )
    if not (report["flags"]["avx2"] or report["flags"]["neon"]):
        yield Problem("the processor has neither AVX2 nor NEON", "expect every pass to be slow")


def _space(report: Report) -> Iterator[Problem]:
    if report["memory"]["available"] < 3 * GIB:
        yield Problem(
            f"{report['memory']['available'] / GIB:.1f} GiB of memory available, training wants 3",
            "close other programs, or use a smaller batch",
        )
    if report["disk_free"] < 2 * GIB:
        yield Problem(
            f"{report['disk_free'] / GIB:.1f} GiB of disk free, the demo wants 2",
            "free some space; the cache folders and how to clear them stand above",
        )


def _kernels(report: Report) -> Iterator[Problem]:
    native = report["native"]
    if not native["active"]:
        yield Problem(
            f"the fast CPU kernels are off ({native['reason']}); passes take two to three times"
            " as long in PyTorch",
            f"install a C++ compiler (g++ or clang++), and unset {library.SWITCH}",
        )


def _gpu(report: Report) -> Iterator[Problem]:
    gpu = report["gpu"]
    if gpu["driver"] and not gpu["devices"]:
        reason = "torch is a CPU build" if gpu["torch_cuda"] is None else "torch cannot use it"
        yield Problem(
            f"an NVIDIA driver is loaded, but {reason}",
            "install the CUDA build of torch that fits the driver (pytorch.org/get-started)",
        )


CHECKS: tuple[Callable[[Report], Iterator[Problem]], ...] = (
    _missing_packages,
    _missing_model,
    _busy,
    _threads,
    _space,
    _kernels,
    _gpu,
)


def _native() -> dict[str, Any]:
    """Whether the CPU kernels are active, and why (not); compiles them if that was not done."""
    with warnings.catch_warnings(action="ignore"):
        found = library.status()
        int8 = library.draft_kind() == library.W8A8
    return {"active": found.active, "reason": found.reason, "int8_products": int8}


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _folder(path: Path) -> dict[str, Any]:
    sizes = (f.stat().st_size for f in path.rglob("*") if f.is_file() and not f.is_symlink())
    return {"path": str(path), "bytes": sum(sizes) if path.is_dir() else 0}
