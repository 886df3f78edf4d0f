"""What a verifier pass of W rows costs, natively and in PyTorch, beside what memory allows.

    python -m benchmarks.cost_curve --threads 2 --json cost_curve.json
    python -m benchmarks.cost_curve --threads 2 --paths native int8 draft

Every round times each width on every path once, in a new order, on a cache of ``--context``
tokens, and reads as many bytes as the fp32 weights have, from the same kind of memory. The path
``int8`` is another verifier, the same model with int8 weights; its step is held against reading
its own bytes. ``draft`` is the copy of the fp32 model with int8 weights that drafts for it
(``quantized``). The table shows medians, of times and of the ratios within rounds. A busy machine
makes them meaningless: the load is printed, and on how many calls the native path withdrew from
crowded cores.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.command import Parser, positive, start
from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.measure.machine import load_1m, machine_facts
from breakeven.progress import meter
from breakeven.verifier.architecture import Architecture
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier, tensor_sizes
from breakeven.verifier.int8 import GROUP, is_int8
from breakeven.verifier.load import load_verifier
from breakeven.verifier.native import library
from breakeven.verifier.native.panels import Shelf
from breakeven.verifier.rows import chain

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 17, 24, 33, 64)
TARGETS = {4: 1.15, 8: 1.3, 17: 2.0}
"""C(W) / C(1) that speculation is to find."""

STEP_TARGET = 1.15
"""A plain step, in times of reading the weights once."""

Samples = dict[str, dict[int, list[float]]]
"""Seconds of every round, by path and width."""

CALM_S = 0.02
"""Pause after PyTorch's work: OpenMP's threads spin on for some ms and would disturb the next."""

DRAFT = "draft"
PATHS = {
    "native": ("native", None),
    "torch": ("lean", None),
    "int8": ("native", "int8"),
    DRAFT: ("native", None),
}
"""Column -> backend and weights of :func:`load_verifier`."""

DEFAULT_PATHS = ("native", "torch")


@dataclass(frozen=True, slots=True)
class Timed:
    """One way to run a pass, ready to be timed."""

    verifier: LeanVerifier
    cache: KVCache

    @property
    def nbytes(self) -> int:
        """Bytes of weights that a plain step reads."""
        return weight_bytes(self.verifier.architecture, is_int8(self.verifier.name))

    @classmethod
    def prepare(cls, verifier: LeanVerifier, context: int, widest: int) -> Timed:
        """Prefill ``context`` random tokens."""
        cache = verifier.new_cache(1, context + widest)
        prompt = torch.randint(verifier.shape.vocab_size, (1, context))
        verifier.run(Phase.PREFILL, chain(prompt, cache.lengths), cache, Ledger(), logits="none")
        cache.commit(context)
        return cls(verifier, cache)

    def seconds(self, width: int) -> float:
        """Time one verify pass of ``width`` random rows, arg-max of all rows included."""
        ids = torch.randint(self.verifier.shape.vocab_size, (1, width))
        rows, ledger = chain(ids, self.cache.lengths), Ledger()
        self.verifier.run(Phase.VERIFY, rows, self.cache, ledger, logits="choices")
        return ledger.passes[0].seconds


def weight_bytes(architecture: Architecture, int8: bool = False) -> int:
    """Bytes of weights that a plain step reads: all but an embedding table of its own."""
    sizes = tensor_sizes(architecture)
    if not architecture.tied:
        del sizes["model.embed_tokens.weight"]
    found = 0
    for size in sizes.values():
        rounded = int8 and len(size) == 2
        scales = size[0] * -(-size[1] // GROUP) if rounded else 0
        found += torch.Size(size).numel() * (1 if rounded else 4) + 4 * scales
    return found


class Read:
    """Reading as many bytes as the weights have once, on all threads: what memory allows."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.samples = nbytes, list[float]()
        self._memory = Shelf(nbytes // 4).take(nbytes // 4).fill_(1.0)

    def time(self) -> None:
        """Sum the memory and note the seconds."""
        start = time.perf_counter()
        self._memory.sum()
        self.samples.append(time.perf_counter() - start)
        time.sleep(CALM_S)


def measure(
    paths: dict[str, Timed], widths: Sequence[int], read: Read, rounds: int, seed: int = 0
) -> Samples:
    """Time everything; the first round warms up and does not count."""
    order = random.Random(seed)
    jobs = [(name, width) for name in paths for width in widths]
    samples: Samples = {n: {w: [] for w in widths} for n in paths}
    with meter("cost curve", total=rounds + 1) as progress:
        for turn in range(rounds + 1):
            read.time()
            for name, width in order.sample(jobs, len(jobs)):
                seconds = paths[name].seconds(width)
                if turn:
                    samples[name][width].append(seconds)
                if name == "torch":
                    time.sleep(CALM_S)
            progress.advance()
    del read.samples[0]
    return samples


def relative(times: Sequence[float], units: Sequence[float]) -> float:
    """Median of the ratios within each round: a machine that changes its pace cancels out.

    >>> relative([2.0, 4.4], [1.0, 2.0])
    2.1
    """
    return median(t / u for t, u in zip(times, units, strict=True))


def table(samples: Samples, read: Sequence[float], shares: Mapping[str, float]) -> Table:
    """Milliseconds and ratios to one row by width and path, targets beside.

    ``read`` are seconds of reading the fp32 weights; a path reads a share of them.
    """
    shown = Table("rows", title=f"reading the fp32 weights once: {median(read) * 1e3:.1f} ms")
    for name in samples:
        shown.add_column(f"{name} ms", justify="right")
        shown.add_column("C(W)/C(1)", justify="right")
    shown.add_column("target", justify="right")
    for width in next(iter(samples.values())):
        cells = [str(width)]
        for times in samples.values():
            ratio = relative(times[width], times[1])
            cells += [f"{median(times[width]) * 1e3:.1f}", f"{ratio:.2f}"]
        shown.add_row(*cells, f"{TARGETS[width]:.2f}" if width in TARGETS else "")
    steps = [f"{relative(times[1], read) / shares[name]:.2f}" for name, times in samples.items()]
    shown.add_section()
    shown.add_row(
        "1 / read", *(cell for step in steps for cell in ("", step)), f"{STEP_TARGET:.2f}"
    )
    (first, base), *others = samples.items()
    for name, times in others:
        print(f"a step of {name}: {relative(times[1], base[1]):.2f} of a step of {first}")
    return shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--context", type=positive, default=100)
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--widths", type=positive, nargs="+", default=WIDTHS)
    parser.add_argument("--paths", choices=PATHS, nargs="+", default=DEFAULT_PATHS)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    options = parse(arguments)
    widths = sorted({1, *options.widths})
    machine = machine_facts()
    paths, nbytes = {}, 0
    for name in options.paths:
        backend, weights = PATHS[name]
        loaded = load_verifier(
            options.model, threads=options.threads, backend=backend, weights=weights
        )
        verifier = loaded.verifier
        assert isinstance(verifier, LeanVerifier)
        nbytes = weight_bytes(verifier.architecture)
        if name == DRAFT:
            verifier = verifier.rounded()
        paths[name] = Timed.prepare(verifier, options.context, max(widths))
    read = Read(nbytes)
    samples = measure(paths, widths, read, options.rounds)
    machine["threads"], machine["load_1m_end"] = torch.get_num_threads(), load_1m()
    crowded = library.crowded()
    shares = {name: timed.nbytes / nbytes for name, timed in paths.items()}
    Console().print(table(samples, read.samples, shares))
    print(
        f"{nbytes / 1e6:.0f} MB of weights at {nbytes / median(read.samples) / 1e9:.1f} GB/s; "
        f"{machine['threads']} threads; load {machine['load_1m_start']} to "
        f"{machine['load_1m_end']}; {crowded} native calls withdrew from crowded cores"
    )
    if options.json:
        result = {
            "model": options.model,
            "machine": machine,
            "native": {k: str(v) for k, v in asdict(library.status()).items()},
            "context": options.context,
            "rounds": options.rounds,
            "weight_bytes": {name: timed.nbytes for name, timed in paths.items()},
            "crowded_calls": crowded,
            "targets": {
                "step": STEP_TARGET,
                **{str(width): goal for width, goal in TARGETS.items()},
            },
            "read_seconds": read.samples,
            "pass_seconds": samples,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    start(main)
