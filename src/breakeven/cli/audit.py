"""``breakeven audit``: is the output the verifier's own?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.bench import SHIPPED, Drafters, Lengths, Prompts, Split, prepared
from breakeven.cli.options import (
    BUNDLED,
    ArtifactPath,
    Device,
    Force,
    Json,
    MaxNewTokens,
    ModelName,
    OutPath,
    Seed,
    Threads,
)
from breakeven.errors import OutputExistsError, RecipeError, nearest

if TYPE_CHECKING:
    from breakeven.measure.audit import Audit

FILE = "audit.json"

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
    drafter: Drafters = ["ngram"],  # noqa: B006 - typer copies it
    k: Lengths = "4",
    model: ModelName = BUNDLED,
    artifact: ArtifactPath = SHIPPED,
    split: Split = "test",
    prompts: Prompts = 8,
    max_new_tokens: MaxNewTokens = 96,
    level: LevelName = "L2",
    out: OutPath = Path("runs/audit"),
    threads: Threads = None,
    device: Device = "cpu",
    seed: Seed = 0,
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
    from breakeven.measure.audit import Level, exit_code
    from breakeven.measure.bench import registered
    from breakeven.measure.configuration import cross, parse_lengths
    from breakeven.measure.inspection import inspect
    from breakeven.measure.results import write_json
    from breakeven.measure.trial import Decoding

    if level not in list(Level):
        raise RecipeError(f"level '{level}': {nearest(level, list(Level))}")
    if (out / FILE).exists() and not force:
        raise OutputExistsError(f"{out / FILE} exists: give another --out, or --force")
    configurations = cross(drafter, parse_lengths(k))
    loaded, chosen = prepared(model, artifact, split, prompts, seed, threads, device)
    audits = inspect(
        Decoding(loaded.verifier, loaded.eos, max_new_tokens),
        chosen,
        configurations,
        registered(loaded),
        level=Level(level),
    )
    rows = [found.row(loaded.tokenizer) for found in audits]
    write_json(out / FILE, rows)
    if as_json:
        print(json.dumps(rows))
    else:
        show(audits, out / FILE)
    raise typer.Exit(exit_code(audits))


def show(audits: list[Audit], file: Path) -> None:
    """Print one line per configuration."""
    from breakeven.measure.wording import summary_line

    for found in audits:
        print(summary_line(found))
        if found.control is not None:
            print(
                f"  control: {len(found.control.flips)} of {found.control.tokens} plain steps flip "
                f"when padded to {found.control.width} rows (logits move by up to "
                f"{found.control.noise:.2g})"
            )
    print(f"Details: {file}")
