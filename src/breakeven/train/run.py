"""One training run from recipe to drafter folder.

The folder holds the drafter itself (weights, ``drafter.json``), ``recipe.yaml``,
``provenance.json`` (written last: it makes the run finished) and ``training/`` with checkpoints
and metrics. The same command continues an unfinished run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.config import write_recipe
from breakeven.data.artifact import Artifact
from breakeven.data.contract import FILE as CONTRACT_FILE
from breakeven.drafters.peft_bd import require_lean
from breakeven.errors import OutputExistsError
from breakeven.train.acceptance import Acceptance, real_acceptance
from breakeven.train.feed import Feed, usable
from breakeven.train.loop import Outcome, Trainer
from breakeven.train.methods import build
from breakeven.train.objective import Objective
from breakeven.train.provenance import (
    PROVENANCE_FILE,
    file_sha256,
    provenance,
    write_provenance,
)
from breakeven.train.recipe import TrainRecipe
from breakeven.train.sizes import Sizes, sizes
from breakeven.train.validation import Validation
from breakeven.verifier.identity import Identity
from breakeven.verifier.load import Loaded

TRAINING_FOLDER = "training"
RECIPE_FILE = "recipe.yaml"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did; ``provenance`` is what was written."""

    outcome: Outcome
    sizes: Sizes
    resumed_step: int
    provenance: dict[str, Any]


def make_room(out: Path, *, force: bool) -> None:
    """Check that ``out`` may be written: new, empty, or an unfinished run of ours.

    ``force`` removes what is there. Raises :class:`OutputExistsError`.
    """
    if force and out.is_dir():
        shutil.rmtree(out)
    if (out / PROVENANCE_FILE).is_file():
        raise OutputExistsError(
            f"{out}: holds a finished drafter; give another --out, or --force to replace it"
        )
    if out.exists() and not (out / TRAINING_FOLDER).is_dir() and _occupied(out):
        raise OutputExistsError(
            f"{out}: exists and is not a training run; give another --out, or --force to replace it"
        )
    out.mkdir(parents=True, exist_ok=True)


def train_drafter(
    recipe: TrainRecipe,
    loaded: Loaded,
    artifact: Artifact,
    out: Path,
    *,
    tensorboard: bool = True,
) -> Report:
    """Train, or continue training, and write the drafter. ``out`` must be made by
    :func:`make_room`. Raises :class:`TrainingError` when no row is usable or the loss is not
    finite."""
    objective = build(recipe, loaded.verifier, loaded.identity)
    rows = usable(artifact.rows("train"), recipe.data, objective)
    write_recipe(recipe, out / RECIPE_FILE)
    trainer = Trainer(
        objective,
        Feed(rows, recipe.train.rows_per_step, recipe.train.seed),
        recipe.train,
        validation(recipe, loaded, artifact, objective),
        out / TRAINING_FOLDER,
        identity=fingerprint(recipe, artifact, loaded.identity),
        tensorboard=tensorboard,
    )
    resumed = trainer.resumed_step
    outcome = trainer.run()
    objective.save(out)
    counted = counts(objective, loaded)
    content = provenance(
        recipe, loaded.identity, file_sha256(artifact.path / CONTRACT_FILE), counted, outcome
    )
    write_provenance(out, content)
    return Report(outcome, counted, resumed, content)


def validation(
    recipe: TrainRecipe, loaded: Loaded, artifact: Artifact, objective: Objective
) -> Validation:
    """The first usable validation rows, decoded and teacher-forced."""
    settings = recipe.evaluate
    rows = usable(artifact.rows("validation"), recipe.data, objective)[: settings.prompts]

    def decode(trained: Objective) -> Acceptance:
        return real_acceptance(
            loaded.verifier,
            trained.drafter(),
            rows,
            settings,
            k=trained.drafts,
            eos=loaded.eos,
        )

    return Validation(rows, decode, settings.every)


def counts(objective: Objective, loaded: Loaded) -> Sizes:
    """Trainable and total parameters of a run."""
    lean = require_lean(loaded.verifier, objective.name)
    return sizes(sum(p.numel() for p in objective.parameters()), lean.architecture)


def fingerprint(recipe: TrainRecipe, artifact: Artifact, identity: Identity) -> str:
    """What a checkpoint belongs to: recipe, data and verifier, as one hash."""
    parts = [
        recipe.model_dump(mode="json"),
        file_sha256(artifact.path / CONTRACT_FILE),
        identity.weights_sha256,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _occupied(folder: Path) -> bool:
    return not folder.is_dir() or any(folder.iterdir())
