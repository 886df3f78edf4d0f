"""Everything that can be wrong with a variant, found before hours of training."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from breakeven.ablation.plan import Plan, Variant
from breakeven.data.artifact import Artifact
from breakeven.drafters.registry import create
from breakeven.errors import BreakevenError, RecipeError
from breakeven.train.feed import usable
from breakeven.train.methods import build
from breakeven.verifier.load import Loaded


def rehearse(plan: Plan, loaded: Loaded, artifact: Artifact) -> Plan:
    """Build, save and load every variant untrained, the decoding options included.

    Returns the plan with each K filled in: the drafts the variant is trained for, unless the grid
    says otherwise. Raises :class:`RecipeError` naming the variant that cannot be built, has no
    row to train on, or whose options its drafter refuses.
    """
    by_origin: dict[str, list[Variant]] = {}
    for variant in plan.variants.values():
        by_origin.setdefault(variant.origin, []).append(variant)
    found = {v.name: v for group in by_origin.values() for v in _rehearsed(group, loaded, artifact)}
    return replace(plan, variants={name: found[name] for name in plan.variants})


def _rehearsed(group: list[Variant], loaded: Loaded, artifact: Artifact) -> list[Variant]:
    """All variants that decode the same weights."""
    recipe, name = group[0].recipe, group[0].origin
    try:
        objective = build(recipe, loaded.verifier, loaded.identity)
        usable(artifact.rows("train"), recipe.data, objective, recipe.train.seed)
        with tempfile.TemporaryDirectory() as folder:
            objective.save(Path(folder))
            for variant in group:
                name = variant.name
                create(recipe.drafter, loaded, folder, **variant.options)
    except BreakevenError as error:
        raise RecipeError(f"variant '{name}': {error}") from None
    return [replace(v, k=v.k or objective.drafts) for v in group]
