"""``breakeven paper``: the whole protocol of the paper on any verifier."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import DryRun, Force, Json, OutPath
from breakeven.cli.recipes import RecipeWords, is_recipe
from breakeven.cli.shipped import shipped

if TYPE_CHECKING:
    from breakeven.paper.account import Account
    from breakeven.paper.recipe import PaperRecipe
    from breakeven.paper.stages import Stage

USUAL = Path("recipes/smollm2-135m/paper_quick.yaml")

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="STAGE", help="Run this stage; give as many as you like."),
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="STAGE", help="Leave this stage out; as many as you like."),
]
HandedIn = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME=DIR",
        help="A trained drafter instead of training it: `peft-bd`, `anchored` or `fastmtp`.",
    ),
]


def paper(
    words: RecipeWords = None,
    out: OutPath = Path("runs/paper"),
    only: Only = None,
    skip: Skip = None,
    drafter: HandedIn = None,
    dry_run: DryRun = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run the protocol of *Accepted Prefixes Are Not All You Need* on any verifier.

    Stages: the artifact; PEFT-BD, the same with the root in its block (anchored), and FastMTP are
    trained; a plain transformers loop and the engine decode the same prompts; the engine is
    benchmarked in three or more repeated runs; 20 prompts are profiled; denoising steps, cache and
    anchoring are varied. The result is the paper's Figure 1, Tables 1-3 and oracle beside ours,
    with what differs, and which part of the conclusion is algorithm and which implementation:
    paper.json, paper.md, paper.html. A finished stage is not repeated: after Ctrl-C the same
    command goes on. `--force` runs the chosen stages anew. Without a recipe it is the quick one.

    Example:

        breakeven paper --dry-run
        breakeven paper recipes/smollm2-135m/paper.yaml --out runs/paper
        breakeven paper --drafter peft-bd=runs/bd --skip anchored --out runs/mine
        breakeven paper --only bench --force
    """
    from breakeven.paper.account import account, write_account
    from breakeven.paper.folder import Folder
    from breakeven.paper.run import run_stages
    from breakeven.paper.session import Session, check_handed_in
    from breakeven.paper.stages import choose_stages, stages
    from breakeven.paper.training import check_recipes

    recipe = _recipe(words or (), drafter or ())
    chosen = choose_stages(recipe, only or (), skip or ())
    check_handed_in(recipe.drafters)
    check_recipes(recipe, {stage.name for stage in chosen}, shipped)
    if dry_run:
        _show_plan(recipe, chosen, as_json)
        return
    command = shlex.join(["breakeven", *sys.argv[1:]])
    session = Session(recipe, Folder(out), shipped, command)
    run_stages(session, chosen, force=force, say=lambda text: print(text, file=sys.stderr))
    names = [stage.name for stage in stages(recipe)]
    found = account(session.folder, names, recipe.verifier.name, command)
    files = write_account(found, out)
    _show(found, files, as_json)


def _recipe(words: Any, drafters: Any) -> PaperRecipe:
    """The recipe, with what was handed in."""
    from breakeven.config import load_recipe
    from breakeven.errors import RecipeError
    from breakeven.paper.recipe import PaperRecipe

    settings = list(words)
    file = Path(settings.pop(0)) if settings and is_recipe(settings[0]) else shipped(USUAL)
    for given in drafters:
        name, _, folder = given.partition("=")
        if not folder:
            raise RecipeError(f"--drafter {given}: write NAME=FOLDER, e.g. peft-bd=runs/bd")
        settings.append(f"drafters.{name}={json.dumps(folder)}")
    return load_recipe(PaperRecipe, file, settings)


def _show_plan(recipe: PaperRecipe, chosen: list[Stage], as_json: bool) -> None:
    """The stages and what they take."""
    rows = []
    for stage in chosen:
        minutes = stage.minutes(recipe)
        known = None if minutes is None else round(minutes, 1)
        rows.append({"stage": stage.name, "does": stage.about(recipe), "minutes": known})
    if as_json:
        print(json.dumps({"stages": rows, "pace": recipe.pace.machine}, indent=2))
        return
    total = 0.0
    for row in rows:
        taken = row["minutes"]
        total += float(taken or 0)
        print(f"{row['stage']}: {row['does']}; {_minutes(taken)}")
    print(f"about {total:.0f} minutes in all, computed for {recipe.pace.machine}")


def _minutes(taken: Any) -> str:
    """The time of a stage in words."""
    if taken is None:
        return "time not known, and not in the sum"
    return f"about {taken:g} min"


def _show(found: Account, files: list[Path], as_json: bool) -> None:
    from breakeven.measure.results import finite

    if as_json:
        print(json.dumps(finite(found.row()), indent=2, ensure_ascii=False))
        return
    for sentence in found.reading:
        print(f"· {sentence}")
    print(f"wrote {', '.join(map(str, files))}")
