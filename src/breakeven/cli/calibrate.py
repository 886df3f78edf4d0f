"""``breakeven calibrate``: what passes cost here, and what acceptance would have to be."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

PAGE = "calibration.html"

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
        "on), or a `speculation_profile.json`.",
    ),
]
Numbers = Annotated[str, typer.Option(metavar="N[,N...]")]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        metavar="M",
        help="Take about so long in all: 3, or 5 with `--acceptance`; longer is surer.",
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
        breakeven calibrate my/model --acceptance 0.8,0.6,0.5 --minutes 5
        breakeven calibrate --acceptance runs/bench/profiles/ngram-k4/speculation_profile.json
    """
    from breakeven.cost.calibration import FILE
    from breakeven.measure.calibration.acceptance import read_acceptance
    from breakeven.measure.calibration.stages import finished
    from breakeven.report.calibration import write_page
    from breakeven.verifier.int8 import full_name

    model = full_name(model, weights)
    asked = read_acceptance(acceptance) if acceptance else None
    plan = planned(drafter, widths, contexts, batches, k, minutes, seed, checked=asked is not None)
    check_out(out, force)
    if dry_run:
        intended = intention(plan, model, other_modes, [] if force else finished(out))
        print(json.dumps(intended, indent=2) if as_json else said(intended))
        return
    loaded = load(model, threads, device, mode)
    stages = room(out, loaded, force)
    found, checked = measured(model, loaded, plan, device, other_modes, asked, stages)
    found.write(out / FILE)
    write_page(found, out / PAGE, asked, checked)
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
    *,
    checked: bool,
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
        minutes=(MINUTES_CHECKED if checked else MINUTES) if minutes is None else minutes,
        seed=seed,
        checked=checked,
    )


def intention(
    plan: CalibrationPlan, model: str, other_modes: bool, stored: list[str]
) -> dict[str, Any]:
    """What would be measured, stage by stage, for machines."""
    lengths = ", ".join(map(str, plan.lengths))
    does = {
        "passes": f"{len(plan.cells())} kinds of passes by width, context and batch",
        "rounds": f"rounds of {', '.join(plan.drafters)} with K = {lengths}",
        "modes": f"{len(plan.widths)} widths in PyTorch (eager)",
        "check": "answers with scripted drafts, every drafter and K",
    }
    wanted = ["passes", "rounds", *["modes"] * other_modes, *["check"] * plan.checked]
    return {
        "model": model,
        "minutes": plan.minutes,
        "stages": [
            {"stage": name, "does": does[name], "seconds": round(plan.seconds(name))}
            for name in wanted
        ],
        "passes": len(plan.cells()),
        "drafters": list(plan.drafters),
        "k": list(plan.lengths),
        "stored": stored,
    }


def said(found: dict[str, Any]) -> str:
    """What would be measured, for people."""
    lines = [f"would calibrate {found['model']} in about {found['minutes']:g} min:"]
    lines += [f"  {s['stage']}: {s['does']}, about {s['seconds']} s" for s in found["stages"]]
    lines.append("  the rest is loading the model and building the drafters")
    if found["stored"]:
        names = ", ".join(found["stored"])
        lines.append(f"  stored by a run before, used again if nothing has changed: {names}")
    return "\n".join(lines)


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
    asked: Acceptance | None,
    stages: Stages,
) -> tuple[Calibration, list[Checked]]:
    """Calibrate, in PyTorch as well where the model has a faster path, and check."""
    from dataclasses import asdict, replace

    from breakeven.measure.calibration.check import Checked, check
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
    found = run(loaded, plan, others=others, command=command, stages=stages)
    if asked is None:
        return found, []
    wanted = {**plan.of_rounds(), "prices": found.row()["drafters"], "rates": asked.rates}

    def decode() -> dict[str, Any]:
        seconds = plan.seconds("check")
        return {"rows": [asdict(c) for c in check(found, verifier, asked, seconds=seconds)]}

    return found, [Checked(**row) for row in stages.of("check", wanted, decode)["rows"]]


def fitting(names: tuple[str, ...], loaded: Loaded) -> tuple[str, ...]:
    """The drafters that this verifier can have; the others are named on standard error."""
    from breakeven.drafters.registry import untrained
    from breakeven.errors import DrafterError

    fit = []
    for name in names:
        try:
            untrained(name, loaded.verifier, 2)
        except DrafterError as error:
            print(f"left out: {error}", file=sys.stderr)
        else:
            fit.append(name)
    return tuple(fit)


def show(
    found: Calibration,
    asked: Acceptance | None,
    checked: list[Checked],
    out: Path,
    as_json: bool,
) -> None:
    """Print the tables, the check and the other engines' command lines, or all as JSON."""
    from breakeven.measure.calibration.elsewhere import commands
    from breakeven.measure.calibration.tables import (
        break_even_table,
        check_table,
        heading,
        sentences,
    )
    from breakeven.verifier.int8 import base_name

    longest = max((max(k) for k in found.drafters.values()), default=4)
    survival = asked.survival(min(longest, len(asked.rates))) if asked else (0.8, 0.6, 0.45)
    engines = commands(base_name(str(found.verifier["name"])), survival)
    if as_json:
        answer = {"out": str(out), "calibration": found.row(), "check": [c.row() for c in checked]}
        answer["commands"] = {e.engine: [e.speculative, e.plain, e.measure] for e in engines}
        print(json.dumps(answer, indent=2))
        return
    from rich.console import Console

    console = Console()
    console.print(heading(found), style="bold")
    console.print(break_even_table(found))
    for line in sentences(found):
        console.print(line, highlight=False, markup=False)
    if checked:
        console.print(check_table(checked))
    rates = ", ".join(f"{s:.3g}" for s in survival)
    console.print(f"\nThe same question elsewhere (survival {rates}):", highlight=False)
    for engine in engines:
        for line in engine.lines():
            print(line)
    print(f"Files: {out / 'calibration.json'}, {out / PAGE}; next: breakeven oracle {out}")
