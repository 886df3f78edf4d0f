"""``breakeven prepare``: prompts, and the verifier's own continuations of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breakeven.cli.options import DryRun, Force, Json, Overrides
from breakeven.counting import counted

if TYPE_CHECKING:
    from breakeven.data.contract import Contract
    from breakeven.data.recipe import PrepareRecipe


def prepare(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A YAML recipe, or a JSONL file of prompts.")
    ],
    overrides: Overrides = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The artifact's folder.")
    ] = Path("artifact"),
    resume: Annotated[
        bool, typer.Option(help="Continue an unfinished run in the folder, or start it again.")
    ] = True,
    dry_run: DryRun = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Build the data: prompts and the verifier's own continuations of them.

    Collects prompts from the recipe's sources, removes duplicates, splits them, lets the verifier
    answer each one greedily, and writes Parquet shards with a contract that says of which verifier
    they are. Every finished answer is kept at once: after Ctrl-C or a crash the same command goes
    on where it stopped.

    Example:

        breakeven prepare recipes/smollm2-135m/artifact.yaml --out runs/artifact
        breakeven prepare my-prompts.jsonl --out runs/mine \\
            split.validation=50 split.test=50
        breakeven prepare recipes/smollm2-135m/artifact.yaml --dry-run
    """
    from breakeven.data.prepare import collect, make_room, plan
    from breakeven.data.prepare import prepare as run
    from breakeven.data.regenerate import estimate
    from breakeven.verifier.load import load_verifier

    settings = _settings(recipe, overrides or ())
    if not dry_run:
        make_room(out, force=force, resume=resume)
    place = None if dry_run else out
    collected = collect(settings, place)
    loaded = load_verifier(
        settings.verifier.name, threads=settings.generate.threads, device=settings.verifier.device
    )
    made = plan(settings, loaded, place, collected)
    summary = made.summary()
    if dry_run:
        summary["magpie"] = settings.sources.magpie.count
        all_rows = 1 + summary["magpie"] / len(made.rows)
        seconds = estimate(loaded.verifier, loaded.eos, made.rows, settings.generate)
        summary["seconds"] = round(seconds * all_rows)
    if not as_json:
        _show(summary)
    if not dry_run:
        contract = run(settings, loaded, out, made)
        summary = {**made.summary(), "out": str(out), "tokens": contract.tokens}
        if not as_json:
            _show_written(contract, made.after["empty continuation"], out)
    if as_json:
        print(json.dumps(summary, indent=2))


def _settings(recipe: Path, overrides: Sequence[str]) -> PrepareRecipe:
    """The recipe, or the default one over a JSONL file of prompts."""
    from breakeven.config import load_recipe
    from breakeven.data.recipe import PrepareRecipe

    if recipe.suffix in (".yaml", ".yml"):
        return load_recipe(PrepareRecipe, recipe, overrides)
    source = f"sources.jsonl.paths={json.dumps([str(recipe)])}"
    return load_recipe(PrepareRecipe, None, [source, *overrides])


def _show_written(contract: Contract, empty: int, out: Path) -> None:
    """What stands in the folder now."""
    rows, tokens = sum(contract.splits.values()), sum(contract.tokens.values())
    print(f"wrote {counted(rows, 'row')}, {counted(tokens, 'continuation token')} to {out}")
    if empty:
        print(f"dropped {counted(empty, 'row')} without a continuation")


def _show(summary: dict[str, Any]) -> None:
    """The plan, for people."""
    print(f"{counted(summary['prompts'], 'prompt')}, {counted(summary['prompt_tokens'], 'token')}")
    for title in ("splits", "categories"):
        print(f"  {title}: " + ", ".join(f"{k} {v}" for k, v in summary[title].items()))
    for source, counts in summary["sources"].items():
        dropped = ", ".join(f"{n} {reason}" for reason, n in counts["dropped"].items())
        print(f"  from {source}: {counts['given']}" + (f" (dropped {dropped})" if dropped else ""))
    if summary.get("magpie"):
        print(f"  to be written by the verifier itself (magpie): {summary['magpie']}")
    if "seconds" in summary:
        minutes = summary["seconds"] / 60
        about = f"about {minutes:.0f} minutes" if minutes >= 1.5 else "a minute or less"
        print(f"  {about} with one worker")
    dropped = ", ".join(f"{n} {reason}" for reason, n in summary["dropped"].items() if n)
    if dropped:
        print(f"  dropped: {dropped}")
    for note in summary["notes"]:
        print(f"  note: {note}")
