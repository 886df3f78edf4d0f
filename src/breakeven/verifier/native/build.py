"""Compile the kernels once for this source, compiler and processor, and keep the library."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from breakeven.progress import meter
from breakeven.verifier.places import cache_folder

SOURCE = Path(__file__).with_name("source")
FLAGS = (
    *("-std=c++17", "-O3", "-ffp-contract=off"),
    *("-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wno-psabi"),
)
TUNING = ("-march=native", "-mcpu=native", "")
"""Ways to ask for this processor's instructions; the first one the compiler takes is used."""

COMPILERS = ("c++", "g++", "clang++")
LIMIT_S = 300


class BuildError(Exception):
    """The library cannot be built; the message says why in one line."""


def build(tuning: Sequence[str] = TUNING) -> Path:
    """The compiled library, from the cache or compiled now (some 10 s, with a progress line).

    It lies in ``native/`` of the cache folder, named by the hash of the source, the compiler's
    version and the processor's features; a change of any of them builds another. Raises
    :class:`BuildError`.
    """
    compiler = find_compiler()
    target = cache_folder() / "native" / f"{fingerprint(compiler, tuning)}.so"
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            meter("compiling the CPU kernels, once for this machine", total=1) as progress,
            tempfile.TemporaryDirectory(dir=target.parent) as folder,
        ):
            _compile(compiler, tuning, Path(folder) / target.name)
            (Path(folder) / target.name).replace(target)
            progress.advance()
    except OSError as error:
        raise BuildError(f"{target.parent} cannot be written ({error.strerror})") from None
    return target


def find_compiler() -> str:
    """``$CXX`` or the first C++ compiler on the path; raises :class:`BuildError`."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    raise BuildError(f"no C++ compiler ({named or ', '.join(COMPILERS)}) is on the path")


def fingerprint(compiler: str, tuning: Sequence[str]) -> str:
    """Hash of all that decides what the library is."""
    digest = hashlib.sha256()
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    for fact in (_run([compiler, "--version"]).stdout, *FLAGS, *tuning, *processor()):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:20]


def processor() -> tuple[str, str]:
    """Architecture and features of this processor."""
    features = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith(("flags", "Features")):
            features = " ".join(sorted(line.partition(":")[2].split()))
            break
    return platform.machine(), features


def _compile(compiler: str, tuning: Sequence[str], target: Path) -> None:
    source = str(SOURCE / "native.cpp")
    for option in tuning:
        done = _run([compiler, *FLAGS, *filter(None, [option]), source, "-o", str(target)])
        if done.returncode == 0:
            return
    lines = done.stderr.strip().splitlines() or ["no message"]
    reason = next((line for line in lines if "error" in line), lines[-1])
    raise BuildError(f"{compiler} cannot compile the kernels ({reason.strip()[:200]})")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} does not run ({error})") from None
