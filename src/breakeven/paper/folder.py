"""The folder of a run: a record for every finished stage, and what it was made from.

    recipe.yaml      the recipe, resolved
    stages/NAME.json settings, inputs, seconds and result of a stage, written when it is finished
    NAME/            what the stage left behind: a trained drafter, a benchmark run, records

A stage counts as done when its record is there and was made with the same settings from the same
drafters. With others it is an error and not silently done again: hours may lie in it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.errors import DataError, OutputExistsError, RecipeError
from breakeven.measure.results import finite, write_json

KEPT = "recipe.yaml"
STAGES = "stages"


@dataclass(frozen=True, slots=True)
class Done:
    """The record of a stage. ``inputs`` are hashes of the drafters it used, by name.

    ``result`` is None while the stage is not finished.
    """

    stage: str
    settings: Any
    inputs: Mapping[str, str]
    seconds: float = 0.0
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """The output folder."""

    path: Path

    def open(self) -> None:
        """Make it; :class:`OutputExistsError` if it holds something that is no run of ours."""
        ours = (self.path / STAGES).is_dir()
        occupied = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if occupied and not ours:
            raise OutputExistsError(
                f"{self.path}: exists and is not a run of `breakeven paper`; give another --out"
            )
        (self.path / STAGES).mkdir(parents=True, exist_ok=True)

    def clear(self, stage: str) -> None:
        """Forget a stage and remove what it left behind."""
        self._record(stage).unlink(missing_ok=True)
        shutil.rmtree(self.path / stage, ignore_errors=True)

    def place(self, stage: str) -> Path:
        """Where a stage keeps its files."""
        return self.path / stage

    def read(self, stage: str) -> Done | None:
        """The record of a stage, None before it was begun."""
        file = self._record(stage)
        if not file.is_file():
            return None
        try:
            return Done(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"{file}: not a stage's record ({error}); --force --only {stage} runs it anew"
            ) from None

    def begin(self, stage: str, settings: Any, inputs: Mapping[str, str]) -> Done:
        """The record of a stage, new or found; :class:`RecipeError` if it was begun otherwise."""
        wanted = json.loads(json.dumps(finite(settings)))
        found = self.read(stage)
        if found is None:
            found = Done(stage, wanted, dict(inputs))
            self.write(found)
        if (found.settings, dict(found.inputs)) != (wanted, dict(inputs)):
            what = "settings" if found.settings != wanted else "drafters"
            raise RecipeError(
                f"{self.path}: the stage '{stage}' was run with other {what}; give the same again, "
                f"another --out, or --force --only {stage} to run it anew"
            )
        return found

    def write(self, done: Done) -> None:
        """Keep the record of a stage."""
        write_json(
            self._record(done.stage),
            {
                "stage": done.stage,
                "settings": done.settings,
                "inputs": dict(done.inputs),
                "seconds": round(done.seconds, 1),
                "result": done.result,
            },
        )

    def _record(self, stage: str) -> Path:
        return self.path / STAGES / f"{stage}.json"
