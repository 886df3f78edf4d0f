"""Many requests at once: tokens a second by batch size, plain and with ngram, ragged prompts.

    python -m benchmarks.batch --json batch.json
    python -m benchmarks.batch --sizes 1 16 --tokens 32

Each size decodes as many requests as the largest one, at most so many at once: a finished request
leaves, the next enters. Prompts differ in length, answers end where they end.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.command import positive, start
from benchmarks.conditions import Report, Target, goals, parser
from breakeven.data.artifact import load_artifact
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.ngram import NGram
from breakeven.measure.neighbours import busy_now
from breakeven.measure.prompts import choose
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import load_verifier

SIZES = (1, 2, 4, 8, 16, 32)
SPEEDUP = {16: 4.0}
"""Batch size -> times the rate of batch 1."""

DEFINITIONS = {
    "tokens/s": "new tokens of all requests ÷ wall time from the first prefill to the last token",
    "ratio": "rate ÷ the rate of plain decoding at batch 1 in the same round; median over rounds",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """All requests decoded once with one batch size."""

    round: int
    method: str
    size: int
    requests: int
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def run(
    verifier: Verifier, requests: Sequence[Request], size: int, drafter: Drafter | None, k: int
) -> tuple[int, float]:
    """Tokens and seconds of all ``requests``, ``size`` at once."""
    start = time.perf_counter()
    answers = list(generate(verifier, requests, drafter=drafter, k=k, batch=size))
    return sum(len(answer.tokens) for answer in answers), time.perf_counter() - start


def measure(
    verifier: Verifier,
    requests: Sequence[Request],
    sizes: Sequence[int],
    k: int,
    rounds: int,
    seed: int = 0,
) -> list[Sample]:
    """Every size, plain and ngram, in an order drawn anew each round.

    Size 1 decodes only as many requests as shows its rate (a quarter of them).
    """
    order, found = random.Random(seed), list[Sample]()
    jobs = [(name, size) for name in ("plain", "ngram") for size in sizes]
    for name, size in jobs:
        run(verifier, [_short(r) for r in requests[:size]], size, _drafter(name), k)
    with meter("batch", rounds * len(jobs)) as progress:
        for turn in range(rounds):
            for name, size in order.sample(jobs, len(jobs)):
                share = requests[: max(size, -(-len(requests) // 4))]
                tokens, seconds = run(verifier, share, size, _drafter(name), k)
                found.append(Sample(turn, name, size, len(share), tokens, seconds))
                progress.advance()
    return found


def _short(request: Request) -> Request:
    return Request(request.id, request.prompt, 2, request.eos)


def _drafter(name: str) -> Drafter | None:
    return NGram() if name == "ngram" else None


def ratio(samples: Sequence[Sample], method: str, size: int) -> float:
    """Times the rate of plain decoding, one request at a time."""
    base = {s.round: s.rate for s in samples if (s.method, s.size) == ("plain", 1)}
    return median(s.rate / base[s.round] for s in samples if (s.method, s.size) == (method, size))


def targets(samples: Sequence[Sample]) -> list[Target]:
    """The goals of plain decoding."""
    sizes = {s.size for s in samples}
    return [
        Target(f"batch {size} ÷ batch 1", ratio(samples, "plain", size), goal)
        for size, goal in SPEEDUP.items()
        if size in sizes
    ]


def table(samples: Sequence[Sample]) -> Table:
    """A line a size."""
    shown = Table("requests at once", title="many requests at once")
    for method in ("plain", "ngram"):
        shown.add_column(f"{method} tokens/s", justify="right")
        shown.add_column("× batch 1", justify="right")
    for size in sorted({s.size for s in samples}):
        cells = [str(size)]
        for method in ("plain", "ngram"):
            rates = [s.rate for s in samples if (s.method, s.size) == (method, size)]
            cells += [f"{median(rates):.1f}", f"{ratio(samples, method, size):.2f}"]
        shown.add_row(*cells)
    return shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    made = parser(__doc__ or "", tokens=32)
    made.add_argument("--sizes", type=positive, nargs="+", default=SIZES)
    made.add_argument("--k", type=positive, default=3, help="draft tokens a round of ngram")
    made.add_argument("--rounds", type=positive, default=2)
    return made.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the JSON."""
    options = parse(arguments)
    sizes = sorted({1, *options.sizes})
    loaded = load_verifier(options.model, threads=options.threads)
    rows = choose(
        load_artifact(options.artifact, loaded.identity).rows("test"), max(sizes), options.seed
    )
    requests = [Request(r.id, tuple(r.prompt_ids), options.tokens, loaded.eos) for r in rows]
    report = Report(options, busy_now())
    samples = measure(loaded.verifier, requests, sizes, options.k, options.rounds, options.seed)
    lengths = sorted(len(request.prompt) for request in requests)
    print(f"prompts of {lengths[0]} to {lengths[-1]} tokens, {options.tokens} new tokens at most")
    Console().print(table(samples), goals(targets(samples)))
    report.write(DEFINITIONS, targets(samples), prompt_lengths=lengths, samples=samples)


if __name__ == "__main__":
    start(main)
