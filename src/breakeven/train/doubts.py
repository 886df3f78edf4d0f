"""What makes a training run less useful than its length says, known before it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from breakeven.counting import counted
from breakeven.data.artifact import Artifact
from breakeven.train.recipe import TrainRecipe

MANY_EPOCHS = 20
"""The paper sees each text 12.8 times."""


def warn(doubts: Sequence[str]) -> None:
    """Print them on standard error, a line each."""
    for doubt in doubts:
        print(f"warning: {doubt}", file=sys.stderr, flush=True)


def small_data(recipe: TrainRecipe, artifact: Artifact) -> list[str]:
    """What the data is too small for, one sentence each."""
    rows = {split: len(artifact.rows(split)) for split in ("train", "validation")}
    rows["train"] = min(rows["train"], recipe.data.rows or rows["train"])
    found = []
    epochs = recipe.train.steps * recipe.train.rows_per_step / max(1, rows["train"])
    if epochs > MANY_EPOCHS:
        found.append(
            f"few rows: each of the {rows['train']} is seen up to {epochs:.0f} times; prepare more"
        )
    if rows["validation"] < recipe.evaluate.prompts:
        found.append(
            f"only {counted(rows['validation'], 'validation row')} of the "
            f"{recipe.evaluate.prompts} that "
            "evaluate.prompts asks for: the best checkpoint is chosen by little"
        )
    return found
