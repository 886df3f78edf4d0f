"""``breakeven ablate``: many variants of a drafter under one budget, and what each is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import (
    ArtifactPath,
    Device,
    DryRun,
    Force,
    Json,
    OutPath,
    Overrides,
    Threads,
)
from breakeven.cli.shipped import shipped
from breakeven.counting import counted

if TYPE_CHECKING:
    from breakeven.ablation.conclusion import Result
    from breakeven.ablation.plan import Plan
    from breakeven.data.artifact import Artifact

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="VARIANT", help="Run this variant; give as many as you like."),
]


def ablate(
    grid: Annotated[
        Path, typer.Argument(metavar="GRID", help="A YAML grid; a shipped one is in `recipes/`.")
    ],
    artifact: ArtifactPath,
    overrides: Overrides = None,
    out: OutPath = Path("runs/ablation"),
    only: Only = None,
    threads: Threads = None,
    device: Device = "cpu",
    dry_run: DryRun = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train and decode every variant of a grid alike, and say what each choice is worth.

    The grid names a training recipe, a budget that is the same for all, seeds, and variants:
    settings of the recipe, or another variant's weights decoded differently. Each is trained as
    `breakeven train` would, then answers held-out prompts, plain decoding beside it. The table has
    tokens per round, the difference to what it is compared with, survival, and the speed in units
    of plain decoding's. All recipes are checked before the first is trained. The same command
    goes on after Ctrl-C; `--force` starts the chosen variants anew. Exit code 1: some output was
    not plain decoding's.

    Example:

        breakeven ablate recipes/smollm2-135m/ablation.yaml -a assets/smollm2-135m \\
            --dry-run
        breakeven ablate recipes/smollm2-135m/ablation.yaml -a assets/smollm2-135m \\
            -o runs/ablation
        breakeven ablate recipes/smollm2-135m/ablation.yaml -a assets/smollm2-135m \\
            --only gated --only paper budget.train.steps=50 -o runs/short
    """
    from breakeven.ablation.grid import Grid
    from breakeven.ablation.plan import resolve
    from breakeven.ablation.run import run_ablation
    from breakeven.config import load_recipe
    from breakeven.data.artifact import load_artifact
    from breakeven.measure.results import finite
    from breakeven.train.methods import check_parts
    from breakeven.verifier.load import load_verifier

    settings = load_recipe(Grid, grid, overrides or ())
    plan = resolve(settings, str(grid), only=only or (), locate=shipped)
    data = load_artifact(artifact)
    for variant in plan.training:
        check_parts(variant.recipe, data.contract.identity)
    if dry_run:
        _show_plan(_plan(plan, data, out), as_json)
        return
    loaded = load_verifier(plan.verifier, threads=threads, device=device)
    result = run_ablation(plan, loaded, load_artifact(artifact, loaded.identity), out, force=force)
    if as_json:
        print(json.dumps(finite(result.content), indent=2, ensure_ascii=False))
    else:
        _show(result, out)
    raise typer.Exit(result.exit_code)


def _plan(plan: Plan, artifact: Artifact, out: Path) -> dict[str, Any]:
    """What would be trained and decoded, without loading any weights."""
    from transformers import AutoConfig

    from breakeven.ablation.places import Places
    from breakeven.train.methods import trainable_parameters
    from breakeven.train.sizes import sizes
    from breakeven.verifier.architecture import Architecture
    from breakeven.verifier.sources import model_folder

    config = AutoConfig.from_pretrained(model_folder(plan.verifier))
    architecture = Architecture.from_config(config)
    places, seeds, budget = Places(out), plan.grid.seeds, plan.training[0].recipe
    to_train = [
        f"{variant.name}, seed {seed}"
        for variant in plan.training
        for seed in seeds
        if not places.finished(variant.name, seed)
    ]
    return {
        "verifier": plan.verifier,
        "variants": [
            {
                "name": variant.name,
                "group": variant.group,
                "drafter": variant.recipe.drafter,
                "of": None if variant.trained else variant.origin,
                "options": dict(variant.options),
                "parameters": str(
                    sizes(trainable_parameters(variant.recipe, architecture), architecture)
                ),
            }
            for variant in plan.running
        ],
        "seeds": list(seeds),
        "runs": len(plan.training) * len(seeds),
        "runs_to_train": to_train,
        "steps_per_run": budget.train.steps,
        "rows_per_step": budget.train.rows_per_step,
        "max_minutes_per_run": budget.train.max_minutes,
        "steps": len(to_train) * budget.train.steps,
        "training_rows": len(artifact.rows("train")),
        "answers": len(plan.running) * len(seeds) * plan.grid.decode.prompts,
        "out": str(out),
    }


def _show_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan, indent=2))
        return
    group = None
    for variant in plan["variants"]:
        if variant["group"] != group:
            group = variant["group"]
            print(group)
        options = ", ".join(f"{key}: {value}" for key, value in variant["options"].items())
        source = f"weights of {variant['of']}" if variant["of"] else variant["parameters"]
        how = f"; decoded with {options}" if options else ""
        print(f"  {variant['name']}: {variant['drafter']}, {source}{how}")
    minutes = plan["max_minutes_per_run"]
    ends = f"{counted(plan['steps_per_run'], 'step')}" + (
        f" or {minutes:g} minutes" if minutes else ""
    )
    print(
        f"{counted(plan['runs'], 'run')} of {ends} of {counted(plan['rows_per_step'], 'row')}, "
        "from "
        f"{counted(plan['training_rows'], 'training row')}; left to train: "
        f"{counted(len(plan['runs_to_train']), 'run')} and "
        f"{counted(plan['steps'], 'step')}"
    )
    print(
        f"then {counted(plan['answers'], 'answer')}, plain decoding beside them; to {plan['out']}"
    )
    if minutes:
        longest = minutes * len(plan["runs_to_train"])
        print(f"training takes at most {longest:g} min; the answers come on top")
    else:
        print("how long a run takes here: breakeven train RECIPE -a ARTIFACT -o OUT --rehearse")


def _show(result: Result, out: Path) -> None:
    from rich.console import Console

    from breakeven.ablation.places import RESULT_FILE, TABLE_FILE
    from breakeven.ablation.table import terminal

    Console().print(terminal(result))
    print(f"wrote {out / TABLE_FILE} and {out / RESULT_FILE}")
