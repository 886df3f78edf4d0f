"""``breakeven bench``: drafters against plain decoding on held-out prompts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import (
    ArtifactPath,
    Device,
    DrafterOptions,
    Force,
    Json,
    MaxNewTokens,
    Mode,
    ModelName,
    OutPath,
    Prices,
    Seed,
    Threads,
    Weights,
)
from breakeven.cli.outcome import show_forecast, show_result
from breakeven.cli.recipes import RecipeWords
from breakeven.cli.trial import (
    Drafters,
    Lengths,
    Prompts,
    Split,
    prepared,
    read_prices,
    trial_recipe,
)
from breakeven.measure.recipe import BenchRecipe

if TYPE_CHECKING:
    from breakeven.cost.calibration import Calibration
    from breakeven.measure.forecast import Forecast
    from breakeven.measure.prompts import Prompt
    from breakeven.verifier.load import Loaded

USUAL = BenchRecipe()

Repeats = Annotated[
    int, typer.Option(min=1, metavar="R", help="Each prompt is decoded so often; 3 or more.")
]
Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        "--dry-run",
        help="Say what would be measured, for how long, and how small a difference it could show.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue a run that was stopped in the output folder.")
]


def bench(
    context: typer.Context,
    words: RecipeWords = None,
    drafter: Drafters = ["ngram"],  # noqa: B006 - typer copies it
    drafter_option: DrafterOptions = None,
    k: Lengths = "2,4",
    model: ModelName = USUAL.verifier.name,
    artifact: ArtifactPath = USUAL.prompts.artifact,
    split: Split = USUAL.prompts.split,
    prompts: Prompts = USUAL.prompts.count,
    repeats: Repeats = USUAL.repeats,
    max_new_tokens: MaxNewTokens = USUAL.max_new_tokens,
    threads: Threads = None,
    device: Device = USUAL.verifier.device,
    mode: Mode = None,
    weights: Weights = None,
    calibration: Prices = None,
    seed: Seed = USUAL.seed,
    out: OutPath = Path("runs/bench"),
    resume: Resume = False,
    force: Force = False,
    dry_run: Plan = False,
    as_json: Json = False,
) -> None:
    """Measure drafters against plain decoding on held-out prompts.

    Every prompt is decoded plainly and with every drafter and draft length, one after another in
    an order drawn anew each time, so that a slow minute of the machine hits all alike. The answers
    are checked against plain decoding's. The result is a folder of tables and one sentence: what
    pays here, by how much, with what confidence. A stopped run goes on with --resume. The
    `recipe.yaml` in the folder repeats the run.

    Example:

        breakeven bench --drafter ngram --k 2,4 --out runs/bench
        breakeven bench --drafter ngram --drafter peft-bd-gated=runs/gated --plan
        breakeven bench -d ngram -d hybrid --drafter-option ngram.longest=5
        breakeven bench recipes/smollm2-135m/bench.yaml prompts.count=48
    """
    from breakeven.measure.bench import run_bench

    recipe = trial_recipe(BenchRecipe, context, words, "repeats", "calibration")
    loaded, chosen = prepared(recipe)
    prices = read_prices(recipe, loaded)
    if dry_run:
        show_forecast(expected(recipe, loaded, chosen, prices), as_json)
        return
    show_result(
        run_bench(
            loaded,
            chosen,
            recipe.configurations,
            out,
            **settings(recipe),
            prices=prices,
            resume=resume,
            force=force,
        ),
        as_json,
    )


def settings(recipe: BenchRecipe) -> dict[str, Any]:
    """What the recipe says of a run, and the command that asked for it."""
    return {
        "repeats": recipe.repeats,
        "max_new_tokens": recipe.max_new_tokens,
        "seed": recipe.seed,
        "artifact": str(recipe.prompts.artifact),
        "split": recipe.prompts.split,
        "command": shlex.join(["breakeven", *sys.argv[1:]]),
        "recipe": recipe,
    }


def expected(
    recipe: BenchRecipe, loaded: Loaded, prompts: list[Prompt], prices: Calibration | None
) -> Forecast:
    """What the run would take."""
    from breakeven.measure.bench import make_methods, registered
    from breakeven.measure.description import Plan
    from breakeven.measure.forecast import forecast
    from breakeven.measure.trial import Decoding

    configurations = recipe.configurations
    plan = Plan(prompts, configurations, recipe.repeats, recipe.max_new_tokens)
    methods = make_methods(configurations, registered(loaded), prices)
    return forecast(plan, Decoding(loaded.verifier, loaded.eos, recipe.max_new_tokens), methods)
