"""Peak memory of a process that decodes, against the bytes of weights and cache.

    python -m benchmarks.memory --json memory.json
    python -m benchmarks.memory --batch 16 --context 1024
    python -m benchmarks.memory --model smollm2-135m+int8

A process of its own loads the model and decodes a full batch; its peak is read from the system.
What importing PyTorch and transformers takes is measured in a second process and shown apart.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.command import positive, start
from benchmarks.conditions import Report, Target, goals, parser
from benchmarks.cost_curve import weight_bytes
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.int8 import is_int8
from breakeven.verifier.load import load_verifier

TARGET = 1.3
"""Peak ÷ (weights + cache)."""

DEFINITIONS = {
    "peak": "largest resident set of the process, libraries included (ru_maxrss)",
    "libraries": "the same of a process that only imports what decoding needs",
    "weights": "bytes of the weights, fp32 or int8 with scales, a tied embedding once",
    "cache": "bytes of keys and values: batch × (context + 1) slots",
}

UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of ru_maxrss."""


def peak() -> int:
    """The largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def decode(
    model: str, batch: int, context: int, tokens: int, threads: int | None
) -> dict[str, int]:
    """Load, decode ``batch`` random prompts to ``context`` tokens; returns bytes."""
    loaded = load_verifier(model, threads=threads)
    verifier = loaded.verifier
    assert isinstance(verifier, LeanVerifier)
    generator = torch.Generator().manual_seed(0)
    size = (batch, context - tokens)
    ids = torch.randint(verifier.shape.vocab_size, size, generator=generator).tolist()
    requests = [Request(str(i), tuple(prompt), tokens) for i, prompt in enumerate(ids)]
    for _ in generate(verifier, requests, batch=batch):
        pass
    s = verifier.shape
    return {
        "peak": peak(),
        "weights": weight_bytes(verifier.architecture, is_int8(verifier.name)),
        "cache": 2 * 4 * s.layers * s.kv_heads * s.head_dim * batch * (context + 1),
    }


def measured(options: argparse.Namespace, task: str) -> dict[str, int]:
    """The same program in a process of its own."""
    words = [
        f"--{name}={getattr(options, name)}" for name in ("model", "batch", "context", "tokens")
    ]
    if options.threads:
        words.append(f"--threads={options.threads}")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", f"--task={task}", *words],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        check=True,
        text=True,
    )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def ratio(found: dict[str, int]) -> float:
    """Peak ÷ (weights + cache).

    >>> ratio({"peak": 13, "weights": 8, "cache": 2})
    1.3
    """
    return found["peak"] / (found["weights"] + found["cache"])


def table(found: dict[str, int]) -> Table:
    """Megabytes."""
    shown = Table("what", "MB", title="memory")
    shown.columns[1].justify = "right"
    for name in ("weights", "cache", "libraries", "peak"):
        shown.add_row(name, f"{found[name] / 1e6:.0f}")
    return shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    made = parser(__doc__ or "", tokens=16)
    made.add_argument("--batch", type=positive, default=1)
    made.add_argument("--context", type=positive, default=512, help="prompt and answer, in tokens")
    made.add_argument("--task", choices=("compare", "decode", "import"), default="compare",
                      help=argparse.SUPPRESS)  # fmt: skip
    return made.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure in other processes, print the table, write the JSON."""
    options = parse(arguments)
    if options.task != "compare":
        work: dict[str, Any] = {"libraries": peak()}
        if options.task == "decode":
            work = decode(
                options.model, options.batch, options.context, options.tokens, options.threads
            )
        print(json.dumps(work))
        return
    report = Report(options)
    found = {**measured(options, "import"), **measured(options, "decode")}
    targets = [Target("peak ÷ (weights + cache)", ratio(found), TARGET, at_least=False)]
    Console().print(table(found), goals(targets))
    report.write(DEFINITIONS, targets, bytes=found)


if __name__ == "__main__":
    start(main)
