"""What training buys: real acceptance length against the tokens trained on.

    python -m benchmarks.learning_curve gated=runs/gated fastmtp=runs/fastmtp --svg curve.svg

Reads the validation entries of each run's ``training/metrics.jsonl``; the acceptance length is
that of decoding validation prompts with the drafter of that moment (verifier's token included).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command import Parser, start
from breakeven.errors import DataError
from breakeven.train.journal import METRICS_FILE, entries
from breakeven.train.run import TRAINING_FOLDER

AXIS = "acceptance length (bonus included)"


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation of one run."""

    run: str
    step: int
    tokens: int  # of all texts trained on so far, prompts included
    acceptance_length: float
    simulated: float  # the same from teacher-forced guesses at every place
    survival: tuple[float, ...]


def points_of(run: str, folder: Path) -> list[Point]:
    """All evaluations; tokens are those of the last logged step before each."""
    found, tokens = [], 0
    for entry in entries(folder / TRAINING_FOLDER / METRICS_FILE):
        tokens = entry.get("tokens", tokens)
        if entry["split"] == "validation":
            found.append(
                Point(
                    run,
                    entry["step"],
                    tokens,
                    entry["real_acceptance_length"],
                    entry["simulated_acceptance_length"],
                    tuple(entry["real_survival"]),
                )
            )
    return found


def table(points: Sequence[Point]) -> Table:
    """One line per evaluation."""
    shown = Table("run", title="real acceptance by training")
    for name in ("step", "tokens", "AL", "simulated", "survival"):
        shown.add_column(name, justify="right")
    for p in points:
        survival = " ".join(f"{s:.3f}" for s in p.survival)
        lengths = f"{p.acceptance_length:.3f}", f"{p.simulated:.3f}"
        shown.add_row(p.run, str(p.step), f"{p.tokens:,}", *lengths, survival)
    return shown


def draw(points: Sequence[Point], path: Path) -> None:
    """All runs as lines of one chart, written as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    for run in dict.fromkeys(p.run for p in points):
        own = [p for p in points if p.run == run]
        axes.plot(
            [p.tokens for p in own], [p.acceptance_length for p in own], marker="o", label=run
        )
    axes.set_xlabel("tokens trained on (prompts included)")
    axes.set_ylabel(AXIS, fontsize=9)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; draw and write what was asked for."""
    options = parse(arguments)
    points: list[Point] = []
    for text in options.runs:
        name, _, folder = text.rpartition("=")
        points += points_of(name or Path(folder).name, Path(folder))
    if not points:
        runs = ", ".join(options.runs)
        raise DataError(f"no evaluation yet in {runs}; give folders that `train` writes")
    Console().print(table(points))
    if options.svg:
        draw(points, options.svg)
    if options.json:
        options.json.write_text(json.dumps([asdict(p) for p in points], indent=1) + "\n")


if __name__ == "__main__":
    start(main)
