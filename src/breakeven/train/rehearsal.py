"""How long a training run will take: two steps and a small validation are done and timed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from breakeven.data.artifact import Artifact
from breakeven.drafters.peft_bd import require_lean
from breakeven.train.feed import Feed, usable
from breakeven.train.loop import Trainer
from breakeven.train.methods import build
from breakeven.train.precision import teacher_of
from breakeven.train.recipe import TrainRecipe
from breakeven.train.run import validation
from breakeven.verifier.load import Loaded

STEPS, PROMPTS = 2, 2


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Seconds of a step and of validating one prompt, and what a run has of both.

    >>> Rehearsal(6.0, 2.0, steps=900, prompts=24, validations=6, limit=None).minutes
    94.8
    >>> Rehearsal(6.0, 2.0, steps=900, prompts=24, validations=6, limit=5.0).minutes
    5.0
    """

    step_s: float
    prompt_s: float
    steps: int
    prompts: int
    validations: int
    limit: float | None

    @property
    def minutes(self) -> float:
        """An upper estimate: later steps find states that are remembered, validation batches."""
        seconds = self.steps * self.step_s + self.validations * self.prompts * self.prompt_s
        whole = seconds / 60
        return whole if self.limit is None else min(whole, self.limit)


def rehearse(recipe: TrainRecipe, loaded: Loaded, artifact: Artifact) -> Rehearsal:
    """Train :data:`STEPS` steps of a recipe, validate on :data:`PROMPTS` prompts, keep nothing.

    Of a warm start only the share of a few rows is done. Raises :class:`TrainingError` when no
    row is usable.
    """
    lean = require_lean(loaded.verifier, recipe.drafter)
    teacher = teacher_of(lean, recipe.train.precision)
    objective = build(recipe, lean, loaded.identity, teacher)
    rows = usable(artifact.rows("train"), recipe.data, objective, recipe.train.seed)
    settings = recipe.train.model_copy(update={"trackers": ()})
    few = recipe.model_copy(
        update={"evaluate": recipe.evaluate.model_copy(update={"prompts": PROMPTS})}
    )
    judging = validation(few, loaded, artifact, objective)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            objective,
            Feed(rows[: STEPS * settings.rows_per_step], settings.rows_per_step, settings.seed),
            settings,
            judging,
            Path(folder),
            corpus=artifact.rows("train"),
        )
        *steps, validated = trainer.rehearse(STEPS)
    every = recipe.evaluate.every
    return Rehearsal(
        step_s=steps[-1],  # the first warms up
        prompt_s=validated / len(judging.rows),
        steps=settings.steps,
        prompts=recipe.evaluate.prompts,
        validations=max(1, settings.steps // every if every else 1),
        limit=settings.max_minutes,
    )
