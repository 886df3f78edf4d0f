"""Options that several verbs share, so that one word means one thing everywhere.

Use them as annotations: ``def bench(model: ModelName = BUNDLED, k: DraftTokens = 4, ...)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BUNDLED = "smollm2-135m"

ModelName = Annotated[
    str,
    typer.Option(
        "--verifier",
        "--model",
        "-m",
        metavar="NAME",
        help="The verifier: `smollm2-135m` (bundled), a Hugging Face directory or hub id, "
        "or a GGUF file; `NAME+int8` is the same as `--weights int8`.",
    ),
]
ArtifactPath = Annotated[
    Path,
    typer.Option(
        "--artifact",
        "-a",
        metavar="DIR",
        help="Prompts and the verifier's continuations, made by `breakeven prepare`.",
    ),
]
OutPath = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="DIR", help="The folder for what is written."),
]
RecipePath = Annotated[
    Path | None,
    typer.Option("--recipe", "-r", metavar="FILE", help="A YAML recipe; see `recipes/`."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="SECTION.FIELD=VALUE", help="Settings that win over the recipe."),
]
DraftTokens = Annotated[
    int | None,
    typer.Option(
        "--k",
        "-k",
        "--num-speculative-tokens",
        min=0,
        metavar="K",
        help="Tokens drafted in each round, at most: 4, or 16 with `--policy adaptive`; 0 is plain "
        "decoding. Also `--num-speculative-tokens`.",
    ),
]
DrafterOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter-option",
        metavar="OPTION=VALUE",
        help="A setting of the drafter's own, e.g. `longest=5` of ngram; docs/drafters.md lists "
        "them. With several drafters: `ngram.longest=5`.",
    ),
]
MaxNewTokens = Annotated[
    int,
    typer.Option("--max-new-tokens", min=1, metavar="N", help="At most so many new tokens."),
]
BatchSize = Annotated[
    int, typer.Option("--batch", "-b", min=1, metavar="B", help="Requests decoded together.")
]
CacheMemory = Annotated[
    float | None,
    typer.Option(
        "--cache-mb",
        min=0.0,
        metavar="MB",
        help="Memory for keys and values: fewer requests run at once where all would need more.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, metavar="T", help="CPU threads; by default as many as physical cores."
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="`cpu`, `cuda` or `cuda:1`.")
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="`graph` (default on CUDA): passes replay CUDA graphs; `eager`: kernel by kernel.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="`fp32` (default on the CPU), `bf16` (default on CUDA), `fp16` or `fp64`.",
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Prices for `adaptive` from `breakeven calibrate`; without, it measures a few itself.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="KIND",
        help="`int8`: the weights rounded to 8 bits, for faster steps on the CPU. It is another "
        "verifier, `NAME+int8`, with answers, artifacts and drafters of its own.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would be done and how long it takes; do nothing."),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output if it exists.")]
