"""What a training step of ``peft-bd-gated`` costs, beside a naive pass over both streams.

    python -m benchmarks.training --threads 2 --json training.json

Naive: one pass over the clean text and the noised blocks, gradients through all rows, every
epoch. Ours: the verifier's keys and values of a text are computed once without gradient, and only
the noised rows have gradients; measured on first sight of a text, when read from the disk cache,
and when still in memory. Every round takes the same texts through each way in a new order; the
table shows medians of the ratios within rounds. Peak memory is that of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.command import Parser, positive, start
from breakeven.data.artifact import Row, load_artifact
from breakeven.drafters.peft_bd import require_lean
from breakeven.measure.machine import load_1m, machine_facts
from breakeven.progress import meter
from breakeven.train.blocks import Blocks
from breakeven.train.clean import Clean, CleanStream
from breakeven.train.disk import DiskCache
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.train.randomness import generator_of
from breakeven.train.recipe import GatedSettings
from breakeven.verifier.cache import NoPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.load import load_verifier
from breakeven.verifier.rows import noised_blocks, two_streams

TARGET = 1.8
"""Rows per second that reusing the clean stream is to gain over the naive pass."""

WAYS = ("naive", "first sight", "from disk", "in memory")


class NoStream(CleanStream):
    """Nothing is computed beforehand."""

    def of(self, row: Row) -> Clean:
        """An empty stream in the place of the real one."""
        return Clean(torch.empty(0, dtype=torch.long), torch.empty(0, 0))


class TwoStreams(PeftBdObjective):
    """The same loss from one pass over the clean text and the noised blocks."""

    def states(self, texts: Tensor, blocks: Blocks, streams: Sequence[Clean]) -> Tensor:
        """``[B, A, G, H]`` states of the rows that make the guesses."""
        shape, length = self.plan.shape, texts.shape[1]
        layout = noised_blocks(blocks.anchors, shape, block_ids=blocks.ids, masked=blocks.masked)
        both = two_streams(texts, layout, gated=True).to(self._verifier.device)
        hidden = self._verifier.body(both, NoPast(), self.adapter).hidden
        self._seen = hidden[:, :length].detach()
        index = self._sources(blocks, length)
        flat = index.flatten(1)[:, :, None].expand(-1, -1, hidden.shape[2])
        return hidden.gather(1, flat).view(*index.shape, -1)

    def _truth(self, streams: Sequence[Clean], blocks: Blocks) -> Tensor:
        empty = torch.empty(0, dtype=torch.long)
        return super()._truth([Clean(empty, states) for states in self._seen], blocks)


def objective_of(
    way: str, verifier: LeanVerifier, settings: GatedSettings, disk: Path | None = None
) -> PeftBdObjective:
    """The objective of one way, with weights drawn from seed 0."""
    torch.manual_seed(0)
    if way == "naive":
        return TwoStreams(verifier, settings, NoStream(verifier, with_keys=True))
    budget = (1 << 31) if way == "in memory" else 0
    cache = DiskCache(disk, 1 << 32) if way == "from disk" and disk else None
    clean = CleanStream(
        verifier,
        with_keys=True,
        store=torch.float16,
        budget_bytes=budget,
        disk=cache,
        owner="benchmark",
    )
    return PeftBdObjective(verifier, settings, clean)


def step(objective: PeftBdObjective, rows: Sequence[Row]) -> float:
    """Seconds of forward and backward over rows, one at a time."""
    began = time.perf_counter()
    for row in rows:
        objective([row], generator_of(0, 0)).loss.backward()
    objective.zero_grad()
    return time.perf_counter() - began


def measure(
    ways: dict[str, PeftBdObjective], rows: Sequence[Row], rounds: int
) -> dict[str, list[float]]:
    """Seconds per row of every way in every round; a round before them warms up."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with meter("training", total=rounds + 1) as progress:
        for turn in range(rounds + 1):
            for way in order.sample(list(ways), len(ways)):
                spent = step(ways[way], rows) / len(rows)
                if turn:
                    seconds[way].append(spent)
            progress.advance()
    return seconds


def table(seconds: dict[str, list[float]], memory: dict[str, float]) -> Table:
    """Rows per second, the ratio to naive, and peak memory."""
    shown = Table("clean stream", "rows/s", "x naive", "target", "peak MB")
    for way, times in seconds.items():
        gain = median(n / t for n, t in zip(seconds["naive"], times, strict=True))
        target = f"{TARGET}" if way == "in memory" else ""
        peak = f"{memory[way]:.0f}" if way in memory else ""
        shown.add_row(way, f"{1 / median(times):.2f}", f"{gain:.2f}", target, peak)
    return shown


def peak(way: str, arguments: Sequence[str]) -> float:
    """Peak MB of a process that takes every text through one way twice."""
    command = [sys.executable, __file__, *arguments, "--only", way]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(answer.stdout.split()[-1])


def size(row: Row) -> int:
    """Tokens of a text."""
    return len(row.prompt_ids) + len(row.continuation_ids)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--artifact", type=Path, default=Path("assets/smollm2-135m"))
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--rows", type=positive, default=4)
    parser.add_argument("--max-tokens", type=positive, default=320)
    parser.add_argument("--anchors", type=positive, default=16)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--memory", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options, machine = parse(words), machine_facts()
    loaded = load_verifier(options.model, threads=options.threads)
    verifier = require_lean(loaded.verifier, "peft-bd-gated")
    settings = GatedSettings(masks=3, anchors=options.anchors, causal=True)
    texts = load_artifact(options.artifact, loaded.identity).rows("train")
    fitting = [
        r for r in texts if len(r.prompt_ids) + len(r.continuation_ids) <= options.max_tokens
    ]
    rows = random.Random(0).sample(fitting, options.rows)
    with tempfile.TemporaryDirectory() as folder:
        if options.only:
            objective = objective_of(options.only, verifier, settings, Path(folder))
            step(objective, rows)
            step(objective, rows)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            return
        ways = {way: objective_of(way, verifier, settings, Path(folder)) for way in WAYS}
        seconds = measure(ways, rows, options.rounds)
    memory = {way: peak(way, words) for way in ("naive", "in memory")} if options.memory else {}
    machine["threads"], machine["load_1m_end"] = torch.get_num_threads(), load_1m()
    Console().print(table(seconds, memory))
    tokens = sum(map(size, rows)) / len(rows)
    print(
        f"{options.rows} texts of {tokens:.0f} tokens on average, {options.anchors} blocks of 3 "
        f"masks each; {machine['threads']} threads; load {machine['load_1m_start']} to "
        f"{machine['load_1m_end']}"
    )
    if options.json:
        found = {"machine": machine, "target": TARGET, "seconds": seconds, "peak_mb": memory}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
