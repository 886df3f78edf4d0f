"""What the stages of one run share: the recipe, the folder, and, once needed, the verifier."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from breakeven.drafters.card import method_of
from breakeven.errors import DataError, DrafterError
from breakeven.measure.prompts import choose
from breakeven.paper.folder import Folder
from breakeven.paper.recipe import PaperRecipe

if TYPE_CHECKING:
    from breakeven.data.artifact import Artifact, Row
    from breakeven.verifier.load import Loaded

METHOD = {"peft-bd": "peft-bd", "anchored": "peft-bd", "fastmtp": "fastmtp"}
"""The method behind each drafter of the paper."""


@dataclass
class Session:
    """One run. ``locate`` finds what ships with the project; ``command`` is what was typed."""

    recipe: PaperRecipe
    folder: Folder
    locate: Callable[[Path], Path] = field(default=lambda path: path)
    command: str = "breakeven paper"

    @cached_property
    def loaded(self) -> Loaded:
        """The verifier, loaded when the first stage needs it."""
        from breakeven.verifier.load import load_verifier

        who = self.recipe.verifier
        return load_verifier(who.name, threads=who.threads, device=who.device)

    @cached_property
    def artifact(self) -> Artifact:
        """The data, checked to be this verifier's."""
        from breakeven.data.artifact import load_artifact

        return load_artifact(self.artifact_path, self.loaded.identity)

    @property
    def artifact_path(self) -> Path:
        """Where the artifact is, or will be when it is to be prepared."""
        section = self.recipe.artifact
        return section.path if section.prepare else self.locate(section.path)

    def prompts(self, count: int) -> list[Row]:
        """``count`` held-out prompts of all categories, the same in every stage."""
        rows = self.artifact.rows(self.recipe.artifact.split)
        return choose(rows, count, self.recipe.seed)

    def drafters(self, *names: str) -> dict[str, Path]:
        """The folders of those of ``names`` that were handed in or are trained."""
        found = {}
        for name in names:
            given = self.recipe.drafters.get(name)
            if given is not None:
                found[name] = given
            elif (done := self.folder.read(name)) and done.result is not None:
                found[name] = self.folder.place(name)
        return found

    def needed(self, stage: str, *names: str) -> dict[str, Path]:
        """The same; :class:`DataError` when there is none at all."""
        found = self.drafters(*names)
        if not found:
            raise DataError(
                f"the stage '{stage}' has no drafter: run the stage {' or '.join(names)}, hand one "
                f"in (--drafter {names[0]}=FOLDER), or --skip {stage}"
            )
        return found


def check_handed_in(folders: Mapping[str, Path]) -> None:
    """Raise :class:`DrafterError` for a drafter that was handed in and cannot be what it is for."""
    for name, folder in folders.items():
        given = f"--drafter {name}={folder}"
        if not folder.is_dir():
            raise DrafterError(f"{given}: no such folder; give one written by 'train'")
        method = method_of(folder)
        if method != METHOD[name]:
            raise DrafterError(f"{given}: holds a '{method}' drafter, not '{METHOD[name]}'")


def hashes(folders: Mapping[str, Path]) -> dict[str, str]:
    """A hash of each drafter's weights."""
    found = {}
    for name, folder in folders.items():
        digest = hashlib.sha256()
        for file in sorted(folder.glob("*.safetensors")):
            digest.update(file.read_bytes())
        found[name] = digest.hexdigest()[:16]
    return found
