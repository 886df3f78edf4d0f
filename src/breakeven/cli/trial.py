"""What ``bench`` and ``audit`` share: options, where they stand in a recipe, and the loading."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from breakeven.cli.recipes import is_typed, resolved
from breakeven.cli.shipped import shipped
from breakeven.counting import counted
from breakeven.errors import DrafterError
from breakeven.measure.recipe import AuditRecipe, BenchRecipe, PromptSection, TrialRecipe

if TYPE_CHECKING:
    from breakeven.cost.calibration import Calibration
    from breakeven.verifier.load import Loaded

T = TypeVar("T", bound=TrialRecipe)

Drafters = Annotated[
    list[str],
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME[=DIR]",
        help="A drafter (`ngram`, `suffix`, `quantized`, `hybrid` and others, docs/drafters.md), "
        "and for one you trained its folder. Give as many as you like.",
    ),
]
Lengths = Annotated[
    str,
    typer.Option(
        "--k",
        "-k",
        "--num-speculative-tokens",
        metavar="K[,K...]",
        help="Draft lengths, or `adaptive` or `confidence`; each drafter is measured with each. "
        "Also `--num-speculative-tokens`.",
    ),
]
Prompts = Annotated[
    int,
    typer.Option("--prompts", "-n", min=1, metavar="N", help="So many, from all categories."),
]
Split = Annotated[str, typer.Option(metavar="NAME", help="`test`, `validation` or `train`.")]

FLAGS = {
    "drafter": "drafters",
    "k": "k",
    "model": "verifier.name",
    "device": "verifier.device",
    "mode": "verifier.mode",
    "weights": "verifier.weights",
    "threads": "verifier.threads",
    "artifact": "prompts.artifact",
    "split": "prompts.split",
    "prompts": "prompts.count",
    "max_new_tokens": "max_new_tokens",
    "seed": "seed",
}
"""Parameter of the command -> field of the recipe."""


def trial_recipe(kind: type[T], context: typer.Context, words: list[str] | None, *flags: str) -> T:
    """The recipe of a command line; ``flags`` are the parameters that only this verb has.

    Draft lengths that were typed are every drafter's, whatever the file gives one of them.
    """
    recipe = resolved(kind, context, words, {**FLAGS, **{flag: flag for flag in flags}})
    recipe = recipe.with_options(context.params["drafter_option"] or ())
    return recipe.with_common_k() if is_typed(context, "k") else recipe


def prepared(recipe: TrialRecipe) -> tuple[Loaded, list[Any]]:
    """The verifier and the held-out prompts, checked to belong together."""
    from breakeven.data.artifact import load_artifact
    from breakeven.measure.prompts import choose
    from breakeven.verifier.load import load_verifier

    check_parts(recipe)
    who, what = recipe.verifier, recipe.prompts
    ours = what.artifact == PromptSection().artifact
    artifact = load_artifact(shipped(what.artifact) if ours else what.artifact)
    rows = artifact.rows(what.split)
    chosen = choose(rows, affordable(what, len(rows)), recipe.seed)
    loaded = load_verifier(
        who.name, threads=who.threads, device=who.device, weights=who.weights, mode=who.mode
    )
    artifact.contract.check(loaded.identity, artifact.path)
    return loaded, chosen


def check_parts(recipe: TrialRecipe) -> None:
    """Every drafter's name, folder and options, and the prices, before anything is loaded."""
    from breakeven.cost.calibration import Calibration
    from breakeven.drafters.registry import check
    from breakeven.measure.inspection import SCRIPTED

    scripted = SCRIPTED if isinstance(recipe, AuditRecipe) else {}
    for c in recipe.configurations:
        if c.drafter not in scripted:
            check(c.drafter, c.path, c.options)
        elif c.path or c.options:
            raise DrafterError(f"'{c.drafter}' takes no folder and no options; leave them out")
    if isinstance(recipe, BenchRecipe) and recipe.calibration is not None:
        Calibration.read(recipe.calibration)


def affordable(what: PromptSection, rows: int) -> int:
    """How many of ``rows`` to take: what was asked for, or else no more than there are."""
    if "count" in what.model_fields_set or not 0 < rows < what.count:
        return what.count
    print(
        f"the split '{what.split}' has {counted(rows, 'prompt')}, fewer than the usual "
        f"{what.count}: "
        "all are taken",
        file=sys.stderr,
    )
    return rows


def read_prices(recipe: BenchRecipe, loaded: Loaded) -> Calibration | None:
    """The prices that the recipe names, checked to be this verifier's on this machine.

    A warning when no configuration reads them.
    """
    from breakeven.measure.calibration.prices import prices_for, unread
    from breakeven.measure.doubts import warn

    if recipe.calibration is None:
        return None
    warn(unread(recipe.calibration, (c.policy for c in recipe.configurations)))
    return prices_for(loaded, recipe.calibration)
