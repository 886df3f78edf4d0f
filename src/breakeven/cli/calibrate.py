"""``breakeven calibrate``: what passes cost here, and what acceptance would have to be."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.calibration import PAGE, intention, said, show
from breakeven.cli.options import (
    BUNDLED,
    Device,
    DryRun,
    Force,
    Json,
    Mode,
    OutPath,
    Seed,
    Threads,
    Weights,
)
from breakeven.errors import OutputExistsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from breakeven.cost.calibration import Calibration
    from breakeven.measure.calibration.acceptance import Acceptance
    from breakeven.measure.calibration.check import Checked
    from breakeven.measure.calibration.plan import CalibrationPlan
    from breakeven.measure.calibration.stages import Stages
    from breakeven.verifier.interface import Verifier
    from breakeven.verifier.load import Loaded

Model = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL]",
        help="`smollm2-135m` (bundled), a Hugging Face directory or hub id, or a GGUF file.",
    ),
]
Drafters = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter", "-d", metavar="NAME", help="Price only these; by default all that fit."
    ),
]
Synthetic = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="R1,R2,...|FILE",
        help="Decode for real with this acceptance: conditional rates by position (the last goes "
        "on), or a measured `speculation_profile.json` or its folder.",
    ),
]
Numbers = Annotated[str, typer.Option(metavar="N[,N...]")]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        metavar="M",
        help="Measure about so long: 3, or 6 with `--acceptance`, loading a small model included; "
        "longer is surer.",
    ),
]
OtherModes = Annotated[
    bool,
    typer.Option(
        "--other-modes/--no-other-modes", help="Also price the plain PyTorch path (eager)."
    ),
]


def calibrate(
    model: Model = BUNDLED,
    acceptance: Synthetic = None,
    drafter: Drafters = None,
    widths: Numbers = "1,2,3,4,5,6,8,12,17,24,32,48,64",
    contexts: Numbers = "32,128,512",
    batches: Numbers = "1,4",
    k: Annotated[str, typer.Option("--k", "-k", metavar="K[,K...]")] = "1,2,4",
    minutes: Minutes = None,
    other_modes: OtherModes = True,
    threads: Threads = None,
    device: Device = "cpu",
    mode: Mode = None,
    weights: Weights = None,
    seed: Seed = 0,
    out: OutPath = Path("runs/calibration"),
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Learn in three minutes whether speculation can pay here, before training anything.

    Measured are passes of the model by width, context, batch and execution mode, the time of a
    round that lies in no pass, and the price of every drafter (built with random weights, which
    cost what trained ones do). The **break-even** of a drafter and K is the acceptance length
    (tokens committed per verify pass, the verifier's own included) that it would need.

    With `--acceptance` the model decodes for real: the drafters work, a script decides which
    drafts are right, and the predicted speed is held against the measured one.

    Writes `calibration.json`, which `breakeven oracle` reads, and `calibration.html`. Each stage
    is stored as it ends: after Ctrl-C or a crash the same command goes on behind the last one.

    Examples:

        breakeven calibrate
        breakeven calibrate my/model --acceptance 0.8,0.6,0.5 --minutes 10
        breakeven calibrate --acceptance runs/bench/profiles/ngram-k4
    """
    from breakeven.cost.calibration import FILE
    from breakeven.measure.calibration.acceptance import read_acceptance
    from breakeven.measure.calibration.stages import finished
    from breakeven.report.calibration import write_page
    from breakeven.verifier.int8 import full_name

    model = full_name(model, weights)
    asked = None if acceptance is None else read_acceptance(acceptance)
    plan = planned(drafter, widths, contexts, batches, k, minutes, seed, asked)
    check_out(out, force)
    if dry_run:
        intended = intention(plan, model, other_modes, [] if force else finished(out))
        print(json.dumps(intended, indent=2) if as_json else said(intended))
        return
    loaded = load(model, threads, device, mode)
    stages = room(out, loaded, force)
    found, checked = measured(model, loaded, plan, device, other_modes, stages)
    write_page(found, out / PAGE, asked, checked)
    found.write(out / FILE)  # the last: where it is, nothing is left to do
    stages.clear()
    show(found, asked, checked, out, as_json)


def check_out(out: Path, force: bool) -> None:
    """Raise what stands in the way of writing there, before anything is loaded."""
    from breakeven.cost.calibration import FILE
    from breakeven.measure.calibration.stages import require_room

    if (out / FILE).exists() and not force:
        raise OutputExistsError(f"{out / FILE} exists: give another --out, or --force")
    require_room(out)


def planned(
    drafter: list[str] | None,
    widths: str,
    contexts: str,
    batches: str,
    k: str,
    minutes: float | None,
    seed: int,
    acceptance: Acceptance | None,
) -> CalibrationPlan:
    """The plan of a command line; an unknown drafter is an error before anything is loaded."""
    from breakeven.drafters import registry
    from breakeven.errors import RecipeError, nearest
    from breakeven.measure.calibration.plan import (
        MINUTES,
        MINUTES_CHECKED,
        CalibrationPlan,
        numbers,
    )

    known = registry.names()
    for name in drafter or ():
        if name not in known:
            raise RecipeError(f"no drafter is called '{name}'; {nearest(name, known)}")
    return CalibrationPlan(
        drafters=tuple(drafter or known),
        widths=numbers("--widths", widths),
        contexts=numbers("--contexts", contexts),
        batches=numbers("--batches", batches),
        lengths=numbers("--k", k),
        minutes=(MINUTES_CHECKED if acceptance else MINUTES) if minutes is None else minutes,
        seed=seed,
        acceptance=acceptance,
    )


def load(model: str, threads: int | None, device: str, mode: str | None) -> Loaded:
    """Load the model, and say that it takes a moment."""
    from breakeven.verifier.load import load_verifier

    print(f"loading {model}", file=sys.stderr, flush=True)
    return load_verifier(model, threads=threads, device=device, mode=mode)


def room(out: Path, loaded: Loaded, force: bool) -> Stages:
    """Where stages are stored; ``force`` removes an earlier calibration and its stages."""
    from breakeven.cost.calibration import FILE
    from breakeven.measure.calibration.stages import FOLDER, Stages, setting_of

    stages = Stages(out / FOLDER, setting_of(loaded))
    if force:
        stages.clear()
        for name in (FILE, PAGE):
            (out / name).unlink(missing_ok=True)
    return stages


def measured(
    model: str,
    loaded: Loaded,
    plan: CalibrationPlan,
    device: str,
    other_modes: bool,
    stages: Stages,
) -> tuple[Calibration, list[Checked]]:
    """Calibrate, in PyTorch as well where the model has a faster path, and check."""
    from dataclasses import replace

    from breakeven.measure.calibration.run import calibrate as run
    from breakeven.verifier.graphs import GraphVerifier
    from breakeven.verifier.load import load_verifier

    verifier = loaded.verifier
    plan = replace(plan, drafters=fitting(plan.drafters, loaded))
    others: dict[str, Callable[[], Verifier]] = {}
    if other_modes and isinstance(verifier, GraphVerifier):
        eager = verifier.eager
        others["eager"] = lambda: eager
    elif other_modes and verifier.mode == "native":
        others["eager"] = lambda: load_verifier(model, device=device, backend="lean").verifier
    command = shlex.join(["breakeven", *sys.argv[1:]])
    return run(loaded, plan, others=others, command=command, stages=stages)


def fitting(names: tuple[str, ...], loaded: Loaded) -> tuple[str, ...]:
    """The drafters that this verifier can have; the others are named on standard error."""
    from breakeven.drafters.registry import untrained
    from breakeven.errors import DrafterError

    fit = []
    for name in names:
        try:
            untrained(name, loaded.verifier, 2)
        except DrafterError as error:
            print(f"left out, {name}: {error}", file=sys.stderr)
        else:
            fit.append(name)
    return tuple(fit)
