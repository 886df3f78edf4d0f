"""``breakeven audit``: is the output the verifier's own?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    Seed,
    Threads,
    Weights,
)
from breakeven.cli.recipes import RecipeWords
from breakeven.cli.trial import Drafters, Lengths, Prompts, Split, prepared, trial_recipe
from breakeven.errors import OutputExistsError
from breakeven.measure.recipe import AuditRecipe

if TYPE_CHECKING:
    from breakeven.measure.audit import Audit

FILE, RECIPE = "audit.json", "audit.yaml"
USUAL = AuditRecipe()

LevelName = Annotated[
    str,
    typer.Option(
        "--level",
        metavar="LEVEL",
        help="`L0`: compare the tokens; `L1`: also what the kernels alone change; `L2`: also "
        "re-score every token.",
    ),
]


def audit(
    context: typer.Context,
    words: RecipeWords = None,
    drafter: Drafters = ["ngram"],  # noqa: B006 - typer copies it
    drafter_option: DrafterOptions = None,
    k: Lengths = "4",
    model: ModelName = USUAL.verifier.name,
    artifact: ArtifactPath = USUAL.prompts.artifact,
    split: Split = USUAL.prompts.split,
    prompts: Prompts = USUAL.prompts.count,
    max_new_tokens: MaxNewTokens = USUAL.max_new_tokens,
    level: LevelName = USUAL.level,
    threads: Threads = None,
    device: Device = USUAL.verifier.device,
    mode: Mode = None,
    weights: Weights = None,
    seed: Seed = USUAL.seed,
    out: OutPath = Path("runs/audit"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Check that the output is the verifier's own, and class every divergence.

    Every prompt is decoded plainly and with the drafter. Where the tokens part, the gap in logits
    tells a near-tie (rounding) from a bug. `--drafter random`, `oracle` and `anti-oracle` need no
    weights and put the decoder itself to the test. Exit code: 0 equal or near-ties only, 1 a bug,
    2 inconclusive because nothing was drafted.

    Example:

        breakeven audit --drafter ngram --drafter random --prompts 8
        breakeven audit --drafter peft-bd-gated=runs/gated --k 4 --level L2 --json
    """
    from breakeven.config import write_recipe
    from breakeven.measure.audit import Level, exit_code
    from breakeven.measure.bench import registered
    from breakeven.measure.inspection import inspect
    from breakeven.measure.results import finite, write_json
    from breakeven.measure.trial import Decoding

    recipe = trial_recipe(AuditRecipe, context, words, "level")
    if (out / FILE).exists() and not force:
        raise OutputExistsError(f"{out / FILE} exists: give another --out, or --force")
    loaded, chosen = prepared(recipe)
    out.mkdir(parents=True, exist_ok=True)  # before the work: it may not be allowed
    audits = inspect(
        Decoding(loaded.verifier, loaded.eos, recipe.max_new_tokens),
        chosen,
        recipe.configurations,
        registered(loaded),
        level=Level(recipe.level),
    )
    rows = [found.row(loaded.tokenizer) for found in audits]
    write_json(out / FILE, rows)
    write_recipe(recipe, out / RECIPE)
    if as_json:
        print(json.dumps(finite(rows)))
    else:
        show(audits, out / FILE)
    raise typer.Exit(exit_code(audits))


def show(audits: list[Audit], file: Path) -> None:
    """Print one line per configuration."""
    from breakeven.measure.wording import summary_line

    for found in audits:
        print(summary_line(found))
        print(f"  {found.trajectories.line()}")
        if found.control is not None:
            print(
                f"  control: {len(found.control.flips)} of {found.control.tokens} plain steps flip "
                f"when padded to {found.control.width} rows (logits move by up to "
                f"{found.control.noise:.2g})"
            )
    print(f"Details: {file}")
