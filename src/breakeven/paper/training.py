"""The stages that make what is measured: the artifact and the drafters."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breakeven.config import load_recipe
from breakeven.data.contract import FILE as CONTRACT
from breakeven.data.contract import Contract
from breakeven.data.recipe import PrepareRecipe
from breakeven.errors import RecipeError
from breakeven.paper.recipe import PaperRecipe, TrainingSection
from breakeven.paper.session import Session

if TYPE_CHECKING:
    from breakeven.train.recipe import TrainRecipe


def make_artifact(session: Session) -> dict[str, Any]:
    """Prepare the artifact where it is missing; its splits and tokens."""
    section = session.recipe.artifact
    if section.prepare is not None and not (section.path / CONTRACT).is_file():
        from breakeven.data.prepare import make_room, plan, prepare

        recipe = preparation(session.recipe, section.prepare, session.locate)
        make_room(section.path, force=False, resume=True)
        made = plan(recipe, session.loaded, section.path)
        prepare(recipe, session.loaded, section.path, made)
    contract = session.artifact.contract
    return {
        "path": str(session.artifact_path),
        "splits": dict(contract.splits),
        "tokens": dict(contract.tokens),
        "max_prompt": contract.max_prompt,
        "max_continuation": contract.max_continuation,
    }


def preparation(
    recipe: PaperRecipe, prepare: Path, locate: Callable[[Path], Path]
) -> PrepareRecipe:
    """The recipe of the artifact, checked to be for this verifier."""
    found = load_recipe(PrepareRecipe, locate(prepare))
    if found.verifier.name != recipe.verifier.name:
        raise RecipeError(
            f"{prepare}: prepares for '{found.verifier.name}', the verifier here is "
            f"'{recipe.verifier.name}'"
        )
    return found


def check_recipes(
    recipe: PaperRecipe, stages: Collection[str], locate: Callable[[Path], Path]
) -> None:
    """Raise what is wrong with the files that ``stages`` will read, before anything is loaded."""
    section = recipe.artifact
    if section.prepare is not None and not (section.path / CONTRACT).is_file():
        preparation(recipe, section.prepare, locate)
    else:
        Contract.read(section.path if section.prepare else locate(section.path))
    for name, training in recipe.train.items():
        if name in stages and name not in recipe.drafters:
            training_recipe(training, recipe, locate)


def training_recipe(
    section: TrainingSection, recipe: PaperRecipe, locate: Callable[[Path], Path]
) -> TrainRecipe:
    """The recipe of one drafter, with what the protocol says of it."""
    from breakeven.train.methods import load_train_recipe

    return load_train_recipe(locate(section.recipe), settings_of(section, recipe))


def settings_of(section: TrainingSection, recipe: PaperRecipe) -> list[str]:
    """What wins over a training recipe, most telling last."""
    words = list(section.settings)
    if section.minutes is not None:
        words.append(f"train.max_minutes={section.minutes}")
    return [*words, f"verifier={recipe.verifier.name}"]


def train(session: Session, name: str) -> dict[str, Any]:
    """Train one drafter, or finish it, into the stage's folder; its provenance."""
    from breakeven.train.provenance import PROVENANCE_FILE, read_provenance
    from breakeven.train.run import make_room, train_drafter

    section, folder = session.recipe.train[name], session.folder.place(name)  # type: ignore[index]
    if not (folder / PROVENANCE_FILE).is_file():
        recipe = training_recipe(section, session.recipe, session.locate)
        make_room(folder, force=False)
        train_drafter(recipe, session.loaded, session.artifact, folder)
    return budget(read_provenance(folder))


def budget(provenance: dict[str, Any]) -> dict[str, Any]:
    """What a table says of a training: sizes, steps, texts, accuracy, acceptance."""
    settings = provenance["recipe"]["train"]
    return {
        "parameters": provenance["parameters"],
        "steps": provenance["steps"],
        "rows_per_step": settings["rows_per_step"],
        "sequences": provenance["steps"] * settings["rows_per_step"],
        "training_s": provenance["training_s"],
        "accuracy": provenance.get("accuracy", {}),
        "acceptance_length": provenance["acceptance"]["acceptance_length"],
    }


def handed_in(folder: Path) -> dict[str, Any] | None:
    """The budget of a drafter that was handed in, None where its folder does not tell."""
    from breakeven.errors import DrafterError
    from breakeven.train.provenance import read_provenance

    try:
        return budget(read_provenance(folder))
    except (DrafterError, KeyError, ValueError):
        return None
