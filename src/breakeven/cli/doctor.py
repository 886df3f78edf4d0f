"""``breakeven doctor``: what is installed, and what to do about each problem."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from breakeven.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """Show what is installed and what to do about each problem.

    Look here first when something is slow or missing: versions, processor, threads, load,
    memory, GPU, caches, and one line for each problem that says what to do. The exit code is 1
    when the bundled model cannot run.

    Example:

        breakeven doctor
        breakeven doctor --json | jq .problems
    """
    from breakeven.measure.checkup import look, problems

    report = look()
    found = problems(report)
    if as_json:
        print(json.dumps({**report, "problems": [asdict(problem) for problem in found]}, indent=2))
    else:
        for label, text in describe(report):
            print(f"{label:<10} {text}")
        print()
        for problem in found:
            print(f"{problem.sign} {problem.what}  →  {problem.remedy}")
        if all(problem.optional for problem in found):
            print("✓ nothing stands in the way")
    raise typer.Exit(int(any(problem.blocks for problem in found)))


def describe(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The report as (label, text) lines for people."""
    facts, gpu, memory = report["machine"], report["gpu"], report["memory"]
    flags = ", ".join(flag for flag, present in report["flags"].items() if present)
    omp = report["environment"]["OMP_NUM_THREADS"] or "not set"
    yield "breakeven", f"{report['breakeven']} on Python {facts['python']}, torch {facts['torch']}"
    yield "cpu", f"{facts['cpu']}, {facts['cores']} usable cores ({flags})"
    yield "threads", f"{facts['threads']} (OMP_NUM_THREADS {omp}); load {facts['load_1m_start']}"
    yield "memory", f"{_gib(memory['available'])} of {_gib(memory['total'])} available"
    yield "disk", f"{_gib(report['disk_free'])} free here"
    yield "gpu", ", ".join(gpu["devices"]) or "none"
    native = report["native"]
    kernels = "native CPU kernels" if native["active"] else "PyTorch, native CPU kernels off"
    yield "verifier", f"lean decoder on {kernels} ({native['reason']})"
    if native["active"]:
        yield (
            "",
            "with --weights int8: 8-bit weights in these kernels, another verifier (NAME+int8)",
        )
        products = "8-bit activations (AVX-512 VNNI)" if native["int8_products"] else "fp32 ones"
        yield "", f"drafts from rounded weights multiply 8-bit weights with {products}"
    else:
        yield "", "--weights int8 brings no speed without the kernels"
    if gpu["devices"]:
        yield "", "with --device cuda: CUDA graphs, bf16 (--mode eager launches kernel by kernel)"
    else:
        yield "", "--device cuda and --mode graph are refused: this torch sees no CUDA device"
    for name, present in report["bundled"].items():
        yield "model", f"{name}: {'installed' if present else 'missing'}"
    for name, folder in report["caches"].items():
        yield "cache", f"{folder['path']} ({name}): {_gib(folder['bytes'])}"
    yield from converted(report["models"])
    for extra, versions in report["extras"].items():
        listed = (f"{name} {version or '–'}" for name, version in versions.items())
        yield extra or "core", ", ".join(listed)


def converted(models: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """What was made from GGUF files, a line for each file's name, and how to be rid of it.

    A folder is ``NAME-STAMP``; files of one name that differ have a folder each.
    """
    sizes: dict[str, list[int]] = {}
    for model in models:
        name = re.sub(r"-[0-9a-f]{8}(\.\d+\.part)?$", "", Path(model["path"]).name)
        sizes.setdefault(name, []).append(model["bytes"])
    for name, own in sizes.items():
        count = f" ({len(own)} different files)" if len(own) > 1 else ""
        yield "converted", f"{name}{count}: {_gib(sum(own))}"
    if models:
        folder = shlex.quote(str(Path(models[0]["path"]).parent))
        whole = _gib(sum(model["bytes"] for model in models))
        yield "", f"{whole} in {folder}; to clear: rm -r {folder} (made again when needed)"


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
