"""``breakeven layers``: which of its own layers a verifier can draft with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from breakeven.cli.options import (
    BUNDLED,
    ArtifactPath,
    DryRun,
    Force,
    Json,
    ModelName,
    OutPath,
    Threads,
    Weights,
)
from breakeven.errors import OutputExistsError

if TYPE_CHECKING:
    from breakeven.data.artifact import Row
    from breakeven.train.layer_search import Candidate, Prices
    from breakeven.verifier.decoder import LeanVerifier

Method = Literal["layer-skip", "early-exit"]
MethodName = Annotated[Method, typer.Option("--drafter", "-d", help="What to make.")]
Texts = Annotated[int, typer.Option(min=1, metavar="N", help="Training texts to compare on.")]
Most = Annotated[int, typer.Option(min=1, metavar="N", help="Layers to skip, at most.")]

LONGEST_TEXT = 192  # tokens; short texts suffice and keep the search short


def layers(
    drafter: MethodName = "layer-skip",
    model: ModelName = BUNDLED,
    artifact: ArtifactPath = Path("assets/smollm2-135m"),
    texts: Texts = 4,
    most: Most = 6,
    threads: Threads = None,
    weights: Weights = None,
    out: OutPath = Path("runs/layers"),
    dry_run: DryRun = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find which of its own layers the verifier can draft with; nothing is trained.

    `layer-skip` leaves some layers out, `early-exit` stops after the first ones and lets
    verification go on from there. Each candidate is judged by how often it chooses the verifier's
    token on a few texts, and by what its layers cost here; the best is written as a drafter's
    folder, and the sentence says whether it can pay at all.

    Example:

        breakeven layers --drafter layer-skip --out runs/skip
        breakeven bench --drafter layer-skip=runs/skip --k 1,2
    """
    from breakeven.cli.shipped import shipped
    from breakeven.data.artifact import load_artifact
    from breakeven.drafters.early_exit import EarlyExit
    from breakeven.drafters.layer_skip import LayerSkip
    from breakeven.drafters.peft_bd import require_lean
    from breakeven.train.layer_search import Prices, exits, skippable
    from breakeven.verifier.load import load_verifier

    if out.exists() and not force:
        raise OutputExistsError(f"{out}: exists; give another --out, or --force to overwrite it")
    data = load_artifact(shipped(artifact))
    loaded = load_verifier(model, threads=threads, weights=weights)
    data.contract.check(loaded.identity, data.path)
    lean = require_lean(loaded.verifier, drafter)
    rows = data.rows("train")
    short = [r for r in rows if len(r.prompt_ids) + len(r.continuation_ids) <= LONGEST_TEXT]
    chosen = (short or list(rows))[:texts]
    count = lean.shape.layers
    if dry_run:
        _show_plan(drafter, lean, chosen, min(most, count - 1), as_json)
        return
    prices = Prices.measure(lean)
    if drafter == "layer-skip":
        found = skippable(lean, chosen, prices, min(most, count - 1))
    else:
        found = exits(lean, chosen, prices)
    best = max(found, key=lambda c: c.speed)
    made = (
        LayerSkip(count, best.skip, loaded.identity)
        if drafter == "layer-skip"
        else EarlyExit(count, count - len(best.skip), loaded.identity)
    )
    made.save(out)
    _show(drafter, found, best, prices, out, as_json)


def _show_plan(
    drafter: Method, verifier: LeanVerifier, rows: list[Row], most: int, as_json: bool
) -> None:
    """How many sets of layers would be tried, and for how long: one is tried and timed."""
    from breakeven.train.layer_search import seconds_each, tries

    count = tries(drafter, verifier.shape.layers, most)
    seconds = count * seconds_each(verifier, rows)
    if as_json:
        print(json.dumps({"drafter": drafter, "tries": count, "seconds": seconds}, indent=2))
        return
    print(
        f"would try {count} sets of layers to leave out on {len(rows)} texts, in about "
        f"{seconds:.0f} s at most (one was tried)"
    )


def _show(
    drafter: Method,
    found: list[Candidate],
    best: Candidate,
    prices: Prices,
    out: Path,
    as_json: bool,
) -> None:
    if as_json:
        content = {"prices": asdict(prices), "candidates": [asdict(c) for c in found]}
        print(json.dumps({"drafter": drafter, "best": asdict(best), **content}, indent=2))
        return
    print("layers left out  agree  best K  tokens per plain step")
    for one in found:
        mark = "  <- written" if one is best else ""
        print(f"{len(one.skip):>15} {one.agreement:>6.0%} {one.k:>7} {one.speed:>10.2f}{mark}")
    verb = "can pay here" if best.speed > 1 else "cannot pay here"
    print(
        f"{drafter} {verb}: {best.speed:.2f} tokens per plain step at K = {best.k}, where plain "
        f"decoding has 1 (a layer costs {prices.layer:.1%} of a step, the head {prices.head:.1%})."
    )
    print(f"written to {out}")
