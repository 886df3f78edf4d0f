"""One training run from recipe to drafter folder.

The folder holds the drafter itself (weights, ``drafter.json``), ``recipe.yaml``,
``provenance.json`` (written last: it makes the run finished) and ``training/`` with checkpoints
and metrics. The same command continues an unfinished run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.config import write_recipe
from breakeven.data.artifact import Artifact, Row
from breakeven.data.contract import FILE as CONTRACT_FILE
from breakeven.drafters.card import CARD_FILE
from breakeven.drafters.peft_bd import require_lean
from breakeven.errors import OutputExistsError
from breakeven.progress import Meter
from breakeven.train.acceptance import Acceptance, real_acceptance
from breakeven.train.feed import Feed, usable
from breakeven.train.journal import METRICS_FILE
from breakeven.train.loop import BEST, LATEST, Outcome, Trainer
from breakeven.train.methods import build
from breakeven.train.objective import Objective
from breakeven.train.precision import teacher_of
from breakeven.train.processes import Processes
from breakeven.train.provenance import (
    PROVENANCE_FILE,
    file_sha256,
    provenance,
    write_provenance,
)
from breakeven.train.recipe import DataSettings, TrainRecipe
from breakeven.train.sizes import Sizes, sizes
from breakeven.train.trackers import WANDB_ID_FILE, check_trackers
from breakeven.train.validation import Validation
from breakeven.verifier.identity import Identity
from breakeven.verifier.load import Loaded
from breakeven.verifier.lora import CONFIG_FILE as ADAPTER_CONFIG

TRAINING_FOLDER = "training"
RECIPE_FILE = "recipe.yaml"
DRAFTER_FILES = ("*.safetensors", CARD_FILE, ADAPTER_CONFIG, f"{PROVENANCE_FILE}*", RECIPE_FILE)
"""What a run leaves beside the training folder; ``--force`` removes these and nothing else."""

STATE_FILES = (
    METRICS_FILE,
    f".{METRICS_FILE}.partial",
    f"{LATEST}*",
    f"{BEST}*",
    "tensorboard",
    "wandb",
    WANDB_ID_FILE,
)
"""What stands in the training folder."""

INDIFFERENT = {
    "data": {"clean_mb", "disk_mb"},
    "train": {"trackers", "shard", "log_every", "checkpoint_every"},
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did; ``provenance`` is what was written."""

    outcome: Outcome
    sizes: Sizes
    resumed_step: int
    provenance: dict[str, Any]


def check_room(out: Path, *, force: bool) -> None:
    """Raise :class:`OutputExistsError` unless ``out`` is new, empty, or an unfinished run of ours.

    With ``force`` it may be a finished run, too, but never anything else. Changes nothing.
    """
    finished = (out / PROVENANCE_FILE).is_file()
    if finished and not force:
        raise OutputExistsError(
            f"{out}: holds a finished drafter; give another --out, or --force to replace it"
        )
    begun = finished or _is_training(out / TRAINING_FOLDER)
    if out.exists() and not begun and _occupied(out):
        raise OutputExistsError(f"{out}: exists and is not a training run; give another --out")


def make_room(out: Path, *, force: bool) -> None:
    """Make ``out`` ready to be trained into, after :func:`check_room`; ``force`` starts over."""
    check_room(out, force=force)
    if force:
        for path in (path for pattern in DRAFTER_FILES for path in out.glob(pattern)):
            path.unlink()
        shutil.rmtree(out / TRAINING_FOLDER, ignore_errors=True)
    (out / TRAINING_FOLDER).mkdir(parents=True, exist_ok=True)  # marks the folder as ours


def train_drafter(
    recipe: TrainRecipe,
    loaded: Loaded,
    artifact: Artifact,
    out: Path,
    *,
    processes: Processes | None = None,
) -> Report:
    """Train, or continue training, and write the drafter. ``out`` must be made by
    :func:`make_room`, in the main process. Raises :class:`TrainingError` when no row is usable or
    the loss is not finite."""
    check_trackers(recipe.train.trackers)
    processes = processes or Processes(loaded.verifier.device)
    lean = require_lean(loaded.verifier, recipe.drafter)
    teacher = teacher_of(lean, recipe.train.precision)
    objective = build(recipe, lean, loaded.identity, teacher)
    counted = counts(objective, loaded)
    rows = usable(artifact.rows("train"), recipe.data, objective, recipe.train.seed)
    if processes.main:
        write_recipe(recipe, out / RECIPE_FILE)
    trainer = Trainer(
        objective,
        Feed(rows, recipe.train.rows_per_step, recipe.train.seed),
        recipe.train,
        validation(recipe, loaded, artifact, objective),
        out / TRAINING_FOLDER,
        corpus=artifact.rows("train"),
        identity=fingerprint(recipe, artifact, loaded.identity),
        processes=processes,
    )
    resumed = trainer.resumed_step
    outcome = trainer.run()
    trainer.save(out, getattr(torch, recipe.saved))
    content = provenance(
        recipe, loaded.identity, file_sha256(artifact.path / CONTRACT_FILE), counted, outcome
    )
    if processes.main:
        write_provenance(out, content)
    return Report(outcome, counted, resumed, content)


def validation(
    recipe: TrainRecipe, loaded: Loaded, artifact: Artifact, objective: Objective
) -> Validation:
    """Validation rows of all categories and lengths, decoded and teacher-forced."""
    settings = recipe.evaluate
    rows = usable(artifact.rows("validation"), DataSettings(), objective, recipe.train.seed)

    def decode(trained: Objective, rows: Sequence[Row], bar: Meter) -> Acceptance:
        return real_acceptance(
            loaded.verifier,
            trained.drafter(),
            rows,
            settings,
            k=trained.drafts,
            eos=loaded.eos,
            bar=bar,
        )

    chosen = rows[: settings.prompts]
    return Validation(chosen, decode, settings.every, settings.max_new_tokens)


def counts(objective: Objective, loaded: Loaded) -> Sizes:
    """Trainable and total parameters of a run."""
    lean = require_lean(loaded.verifier, objective.name)
    return sizes(sum(p.numel() for p in objective.parameters()), lean.architecture)


def fingerprint(recipe: TrainRecipe, artifact: Artifact, identity: Identity) -> str:
    """What a checkpoint belongs to: recipe, data and verifier, as one hash.

    Settings that change no number (memory, trackers) may differ when a run is continued.
    """
    parts = [
        recipe.model_dump(mode="json", exclude=INDIFFERENT),
        file_sha256(artifact.path / CONTRACT_FILE),
        identity.weights_sha256,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_training(folder: Path) -> bool:
    """Whether a folder is one where training keeps its state, and nothing else is in it."""
    return folder.is_dir() and all(any(map(p.match, STATE_FILES)) for p in folder.iterdir())


def _occupied(folder: Path) -> bool:
    return not folder.is_dir() or any(folder.iterdir())
