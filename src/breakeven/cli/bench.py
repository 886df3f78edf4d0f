"""``breakeven bench``: drafters against plain decoding on held-out prompts."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import (
    BUNDLED,
    ArtifactPath,
    Device,
    DryRun,
    Force,
    Json,
    MaxNewTokens,
    ModelName,
    OutPath,
    Seed,
    Threads,
)

if TYPE_CHECKING:
    from breakeven.measure.conclusion import BenchResult
    from breakeven.measure.configuration import Configuration
    from breakeven.measure.forecast import Forecast
    from breakeven.measure.prompts import Prompt
    from breakeven.verifier.load import Loaded

SHIPPED = Path("assets/smollm2-135m")

Drafters = Annotated[
    list[str],
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME[=DIR]",
        help="A drafter, and for a trained one its folder. Give as many as you like.",
    ),
]
Lengths = Annotated[
    str,
    typer.Option(
        "--num-speculative-tokens",
        "-k",
        "--k",
        metavar="K[,K...]",
        help="Draft lengths; every drafter is measured with each of them.",
    ),
]
Prompts = Annotated[
    int,
    typer.Option("--prompts", "-n", min=1, metavar="N", help="So many, from all categories."),
]
Split = Annotated[str, typer.Option(metavar="NAME", help="`test`, `validation` or `train`.")]
Repeats = Annotated[
    int, typer.Option(min=1, metavar="R", help="Each prompt is decoded so often; 3 or more.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue a run that was stopped in the output folder.")
]


def bench(
    drafter: Drafters = ["ngram"],  # noqa: B006 - typer copies it
    k: Lengths = "2,4",
    model: ModelName = BUNDLED,
    artifact: ArtifactPath = SHIPPED,
    split: Split = "test",
    prompts: Prompts = 24,
    repeats: Repeats = 3,
    max_new_tokens: MaxNewTokens = 128,
    out: OutPath = Path("runs/bench"),
    threads: Threads = None,
    device: Device = "cpu",
    seed: Seed = 0,
    resume: Resume = False,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Measure drafters against plain decoding on held-out prompts.

    Every prompt is decoded plainly and with every drafter and draft length, one after another in
    an order drawn anew each time, so that a slow minute of the machine hits all alike. The answers
    are checked against plain decoding's. The result is a folder of tables and one sentence: what
    pays here, by how much, with what confidence. A stopped run goes on with --resume.

    Example:

        breakeven bench --drafter ngram --k 2,4 --out runs/bench
        breakeven bench --drafter ngram --drafter peft-bd-gated=runs/gated --dry-run
    """
    from breakeven.measure.bench import run_bench
    from breakeven.measure.configuration import cross, parse_lengths

    configurations = cross(drafter, parse_lengths(k))
    loaded, chosen = prepared(model, artifact, split, prompts, seed, threads, device)
    if dry_run:
        show_forecast(loaded, chosen, configurations, repeats, max_new_tokens, as_json)
        return
    result = run_bench(
        loaded,
        chosen,
        configurations,
        out,
        repeats=repeats,
        max_new_tokens=max_new_tokens,
        seed=seed,
        artifact=str(artifact),
        split=split,
        command=shlex.join(["breakeven", *sys.argv[1:]]),
        resume=resume,
        force=force,
    )
    show_result(result, as_json)


def prepared(
    model: str,
    artifact: Path,
    split: str,
    prompts: int,
    seed: int,
    threads: int | None,
    device: str,
) -> tuple[Loaded, list[Any]]:
    """The verifier and the held-out prompts, checked to belong together."""
    from breakeven.data.artifact import load_artifact
    from breakeven.measure.prompts import choose
    from breakeven.verifier.load import load_verifier

    loaded = load_verifier(model, threads=threads, device=device)
    rows = load_artifact(artifact, loaded.identity).rows(split)
    return loaded, choose(rows, prompts, seed)


def show_forecast(
    loaded: Loaded,
    prompts: list[Prompt],
    configurations: list[Configuration],
    repeats: int,
    max_new_tokens: int,
    as_json: bool,
) -> None:
    """Print what would run."""
    from breakeven.measure.bench import make_methods, registered
    from breakeven.measure.description import Plan
    from breakeven.measure.forecast import forecast
    from breakeven.measure.trial import Decoding

    plan = Plan(prompts, configurations, repeats, max_new_tokens)
    methods = make_methods(configurations, registered(loaded))
    found = forecast(plan, Decoding(loaded.verifier, loaded.eos, max_new_tokens), methods)
    if as_json:
        print(json.dumps(found.row(), indent=2))
        return
    for line in forecast_lines(found):
        print(line)


def forecast_lines(found: Forecast) -> list[str]:
    """A forecast for people."""
    minutes = found.seconds / 60
    return [
        f"would run {', '.join(found.configurations)}",
        f"on {found.prompts} prompts, {found.repeats} times each: {found.trials} answers",
        f"in at most about {minutes:.0f} min" if minutes >= 2 else f"in {found.seconds:.0f} s",
        f"which shows differences of {found.detectable:.0%} or more",
    ]


def show_result(result: BenchResult, as_json: bool) -> None:
    """Print the table and the verdict, or both as JSON."""
    if as_json:
        from breakeven.measure.results import finite

        rows = [row.row() for row in result.performance]
        verdict = result.verdict.row()
        found = {"out": str(result.out), "verdict": verdict, "performance": rows}
        print(json.dumps(finite(found), indent=2))
        return
    from rich.console import Console

    from breakeven.measure.table import bench_table

    console = Console()
    console.print(bench_table(result))
    console.print(result.verdict.sentence, highlight=False, markup=False)
    for reason in result.verdict.reasons:
        console.print(f"  · {reason}", highlight=False, markup=False)
    console.print(f"Files: {result.out}; draw them with: breakeven report {result.out}")
