"""``breakeven train``: a drafter from an artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import ArtifactPath, Device, Force, Json, Overrides, Threads
from breakeven.counting import counted

if TYPE_CHECKING:
    from breakeven.data.artifact import Artifact
    from breakeven.train.recipe import TrainRecipe
    from breakeven.train.run import Report


Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Do two steps, say how long the whole run would take here, and keep nothing.",
    ),
]


def train(
    recipe: Annotated[
        Path,
        typer.Argument(metavar="RECIPE", help="A YAML recipe; shipped ones are in `recipes/`."),
    ],
    artifact: ArtifactPath,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The drafter's folder.")],
    overrides: Overrides = None,
    threads: Threads = None,
    device: Device = "cpu",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained; do nothing.")
    ] = False,
    rehearse: Rehearse = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a drafter on the verifier's own continuations.

    The recipe names the method and its settings; `section.field=value` changes one of them. The
    verifier stays frozen. While it trains, the line shows the loss, the accuracy, the simulated
    acceptance (from teacher-forced predictions) and, from time to time, the real one (from
    decoding validation prompts with the drafter); the weights with the best real acceptance are
    kept. After Ctrl-C or a crash the same command goes on from the last checkpoint. Started by
    `accelerate launch` or `torchrun`, several processes share the rows of each step.

    Example:

        breakeven train recipes/smollm2-135m/peft_bd_gated.yaml \\
            -a assets/smollm2-135m -o runs/bd
        breakeven train recipes/smollm2-135m/fastmtp.yaml \\
            -a assets/smollm2-135m -o runs/mtp train.max_minutes=5 train.lr=5e-4
        breakeven train recipes/smollm2-135m/bonus.yaml \\
            -a assets/smollm2-135m -o runs/bonus method.adapter=runs/bd
        breakeven bench --drafter peft-bd-gated=runs/bd --drafter fastmtp=runs/mtp
    """
    from breakeven.data.artifact import load_artifact
    from breakeven.train.methods import load_train_recipe

    settings = load_train_recipe(recipe, overrides or ())
    data = load_artifact(artifact)
    _check(settings, data)
    if rehearse:
        _rehearse(settings, artifact, threads, device, as_json)
    elif dry_run:
        _show_plan(_plan(settings, data, out), as_json)
    else:
        _train(settings, artifact, out, threads, device, force, as_json)


def _train(
    recipe: TrainRecipe,
    artifact: Path,
    out: Path,
    threads: int | None,
    device: str,
    force: bool,
    as_json: bool,
) -> None:
    """Train, alone or as one of several processes, of which the main one speaks."""
    from breakeven.data.artifact import load_artifact
    from breakeven.train.doubts import small_data, warn
    from breakeven.train.processes import Processes, check_share
    from breakeven.train.run import check_room, make_room, train_drafter
    from breakeven.verifier.load import load_verifier

    check_room(out, force=force)
    processes = Processes(device)
    check_share(recipe.train.rows_per_step, processes)
    place = str(processes.device) if processes.count > 1 else device
    with processes.one_voice():
        loaded = load_verifier(recipe.verifier, threads=threads, device=place)
        data = load_artifact(artifact, loaded.identity)
        warn(small_data(recipe, data))
        with processes.main_first() as main:
            if main:
                make_room(out, force=force)
        report = train_drafter(recipe, loaded, data, out, processes=processes)
    if as_json and processes.main:
        print(json.dumps(report.provenance, indent=2))
    elif processes.main:
        _show(report, out)


def _check(recipe: TrainRecipe, artifact: Artifact) -> None:
    """Raise what can be known before any weight is loaded."""
    from breakeven.train.methods import check_parts
    from breakeven.train.trackers import check_trackers

    check_trackers(recipe.train.trackers)
    check_parts(recipe, artifact.contract.identity)
    for split in ("train", "validation"):
        artifact.rows(split)  # an empty one is an error


def _plan(recipe: TrainRecipe, artifact: Artifact, out: Path) -> dict[str, Any]:
    """What would be trained, without loading any weights."""
    from transformers import AutoConfig

    from breakeven.train.doubts import small_data
    from breakeven.train.methods import trainable_parameters
    from breakeven.train.sizes import sizes
    from breakeven.verifier.architecture import Architecture
    from breakeven.verifier.sources import model_folder

    config = AutoConfig.from_pretrained(model_folder(recipe.verifier))
    architecture = Architecture.from_config(config)
    counted = sizes(trainable_parameters(recipe, architecture), architecture)
    return {
        "drafter": recipe.drafter,
        "verifier": recipe.verifier,
        "parameters": str(counted),
        "rows": {split: len(artifact.rows(split)) for split in ("train", "validation")},
        "steps": recipe.train.steps,
        "rows_per_step": recipe.train.rows_per_step,
        "max_minutes": recipe.train.max_minutes,
        "out": str(out),
        "warnings": small_data(recipe, artifact),
    }


def _show_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan, indent=2))
        return
    minutes = plan["max_minutes"]
    ends = f"{counted(plan['steps'], 'step')} of {counted(plan['rows_per_step'], 'row')}"
    if minutes:
        ends += f", or {minutes:g} minutes if they are over first"
    print(f"{plan['drafter']} for {plan['verifier']}: {plan['parameters']}")
    print(
        f"  {counted(plan['rows']['train'], 'training row')}, "
        f"{counted(plan['rows']['validation'], 'validation row')}"
    )
    print(f"  {ends}; to {plan['out']}")
    if not minutes:
        print(
            "  how long that takes here: the same command with --rehearse (two steps, nothing kept)"
        )
    for warning in plan["warnings"]:
        print(f"  warning: {warning}")


def _rehearse(
    recipe: TrainRecipe, artifact: Path, threads: int | None, device: str, as_json: bool
) -> None:
    """How long the run would take here."""
    from dataclasses import asdict

    from breakeven.data.artifact import load_artifact
    from breakeven.train.rehearsal import rehearse
    from breakeven.verifier.load import load_verifier

    loaded = load_verifier(recipe.verifier, threads=threads, device=device)
    found = rehearse(recipe, loaded, load_artifact(artifact, loaded.identity))
    if as_json:
        print(json.dumps({**asdict(found), "minutes": found.minutes}, indent=2))
        return
    print(
        f"a step took {found.step_s:.2f} s, validating a prompt {found.prompt_s:.2f} s: "
        f"{counted(found.steps, 'step')} and {counted(found.validations, 'validation')} of "
        f"{counted(found.prompts, 'prompt')} take "
        f"at most about {found.minutes:.0f} min here; nothing was kept"
    )


def _show(report: Report, out: Path) -> None:
    outcome, found = report.outcome, report.outcome.validated
    real = found.real
    survival = ", ".join(f"{s:.3f}" for s in real.survival)
    print(report.sizes)
    if report.resumed_step:
        print(f"continued from step {report.resumed_step}")
    print(
        f"{counted(outcome.counts.step, 'step')}, {counted(outcome.counts.tokens, 'token')}, "
        f"{outcome.counts.elapsed_s / 60:.1f} minutes; kept step {outcome.counts.best_step}"
    )
    print(
        f"AL {real.length:.3f} on {counted(real.prompts, 'validation prompt')} (tokens "
        "committed / verify "
        f"passes, bonus included); simulated AL {found.simulated.acceptance_length:.3f}"
    )
    print(found.wiring)
    print(f"survival of drafts 1..K: {survival}")
    print(f"wrote the drafter to {out}")
