"""The trainable methods by name: their recipe, their trainable module, their objective.

Adding a method is one objective module and one row in :data:`METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from torch import nn

from breakeven.config import Section, load_recipe
from breakeven.drafters.bonus import BonusCorrection
from breakeven.drafters.card import Card
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.peft_bd import require_lean
from breakeven.errors import RecipeError, nearest
from breakeven.train.bonus import BonusObjective, adapter_folder
from breakeven.train.clean import CleanStream
from breakeven.train.disk import DiskCache
from breakeven.train.fastmtp import FastMtpObjective
from breakeven.train.objective import Objective
from breakeven.train.peft_bd import PeftBdObjective, lora_spec
from breakeven.train.recipe import (
    BonusRecipe,
    DataSettings,
    FastMtpRecipe,
    GatedRecipe,
    PeftBdRecipe,
    TrainRecipe,
)
from breakeven.verifier.architecture import Architecture
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.places import cache_folder
from breakeven.verifier.rotary import Rotary


@dataclass(frozen=True, slots=True)
class Method:
    """How one method is trained. ``with_keys``: it needs the verifier's keys and values."""

    recipe: type[TrainRecipe]
    objective: Callable[..., Objective]
    module: Callable[[Architecture, Any], nn.Module]
    with_keys: bool


METHODS = {
    "peft-bd": Method(
        recipe=PeftBdRecipe,
        objective=PeftBdObjective,
        module=lambda a, settings: RowLoRA(a, lora_spec(settings, a.layers)),
        with_keys=False,
    ),
    "peft-bd-gated": Method(
        recipe=GatedRecipe,
        objective=PeftBdObjective,
        module=lambda a, settings: RowLoRA(a, lora_spec(settings, a.layers)),
        with_keys=True,
    ),
    "peft-bd-fused": Method(
        recipe=BonusRecipe,
        objective=BonusObjective,
        module=lambda a, settings: BonusCorrection(a.hidden_size, settings.rank),
        with_keys=True,
    ),
    "fastmtp": Method(
        recipe=FastMtpRecipe,
        objective=FastMtpObjective,
        module=lambda a, _: MTPLayer(a, Rotary(torch.empty(a.head_dim // 2), 1.0, torch.float32)),
        with_keys=False,
    ),
}


class _Named(Section):
    """The one key that says which recipe class a file is of."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    drafter: str = ""


def load_train_recipe(path: Path | str, overrides: Sequence[str] = ()) -> TrainRecipe:
    """Read a recipe of any method; its ``drafter`` key says which."""
    name = load_recipe(_Named, path, overrides).drafter
    if name not in METHODS:
        given = f"drafter: '{name}' cannot be trained" if name else "the key 'drafter' is missing"
        raise RecipeError(f"{path}: {given}; {nearest(name, METHODS)}")
    return load_recipe(METHODS[name].recipe, path, overrides)


def check_parts(recipe: TrainRecipe, identity: Identity) -> None:
    """Raise what is wrong with trained parts that a recipe builds on, before a model is loaded.

    ``identity`` is the verifier's, as the artifact's contract states it.
    """
    if isinstance(recipe, BonusRecipe):
        Card.read(adapter_folder(recipe.method, identity), "peft-bd-gated", identity)


def build(
    recipe: TrainRecipe,
    verifier: Verifier,
    identity: Identity | None = None,
    teacher: LeanVerifier | None = None,
) -> Objective:
    """The objective of a recipe, untrained, seeded by the recipe.

    ``teacher`` (default: ``verifier``) is the same model in the precision of training.
    """
    method = METHODS[recipe.drafter]
    lean = require_lean(verifier, recipe.drafter)
    torch.manual_seed(recipe.train.seed)
    owner = identity.weights_sha256 if identity else ""
    clean = clean_stream(recipe.data, teacher or lean, with_keys=method.with_keys, owner=owner)
    return method.objective(teacher or lean, settings_of(recipe), clean, identity, lean)


def clean_stream(
    settings: DataSettings, verifier: Verifier, *, with_keys: bool, owner: str = ""
) -> CleanStream:
    """The remembered verifier passes, as the recipe's ``data`` section asks for them.

    ``owner`` is the hash of the verifier's weights; without it nothing is kept on disk.
    """
    native = settings.clean_dtype == "native"
    on_disk = settings.disk_mb > 0 and owner
    return CleanStream(
        verifier,
        with_keys=with_keys,
        store=None if native else getattr(torch, settings.clean_dtype),
        budget_bytes=settings.clean_mb << 20,
        disk=DiskCache(cache_folder() / "clean", settings.disk_mb << 20) if on_disk else None,
        owner=owner,
    )


def settings_of(recipe: TrainRecipe) -> Any:
    """The ``method`` section, which every recipe class of :data:`METHODS` has."""
    return recipe.method  # type: ignore[attr-defined]


def trainable_parameters(recipe: TrainRecipe, architecture: Architecture) -> int:
    """Counted on the meta device: nothing is allocated."""
    with torch.device("meta"):
        module = METHODS[recipe.drafter].module(architecture, settings_of(recipe))
    return sum(parameter.numel() for parameter in module.parameters())
