"""From a grid to what has to be trained and decoded, with every recipe resolved and checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.ablation.grid import Grid, VariantSection
from breakeven.errors import BreakevenError, RecipeError, nearest
from breakeven.measure.configuration import PLAIN
from breakeven.train.methods import load_train_recipe
from breakeven.train.recipe import TrainRecipe

BUDGET = (
    ("train", "steps"),
    ("train", "rows_per_step"),
    ("train", "max_minutes"),
    ("data", "rows"),
    ("data", "max_tokens"),
)
"""What must be equal in all trained variants."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of the table.

    ``origin`` is the variant whose weights it decodes: itself, when it is trained. ``recipes``
    are those of the origin by seed. ``against`` is the variant it is compared with.
    """

    name: str
    group: str
    says: str
    against: str
    origin: str
    options: Mapping[str, Any]
    k: int | None
    recipes: Mapping[int, TrainRecipe]

    @property
    def trained(self) -> bool:
        """Whether it has weights of its own."""
        return self.origin == self.name

    @property
    def recipe(self) -> TrainRecipe:
        """The recipe of the first seed."""
        return next(iter(self.recipes.values()))

    @property
    def shown(self) -> str:
        """Its name, with what is different where the grid says it."""
        return f"{self.name} ({self.says})" if self.says else self.name


@dataclass(frozen=True, slots=True)
class Plan:
    """All variants in the order of the grid; those in ``chosen`` are to be run now."""

    grid: Grid
    variants: Mapping[str, Variant]
    chosen: tuple[str, ...]

    @property
    def running(self) -> list[Variant]:
        """The variants to decode."""
        return [self.variants[name] for name in self.chosen]

    @property
    def training(self) -> list[Variant]:
        """The variants to train: chosen ones and those whose weights a chosen one decodes."""
        origins = dict.fromkeys(self.variants[name].origin for name in self.chosen)
        return [self.variants[name] for name in origins]

    @property
    def verifier(self) -> str:
        """The one verifier of all recipes."""
        return next(iter(self.variants.values())).recipe.verifier


def resolve(
    grid: Grid,
    source: str,
    *,
    only: Sequence[str] = (),
    locate: Callable[[Path], Path] = lambda path: path,
) -> Plan:
    """Load every recipe and check that the comparison is a fair one.

    ``source`` names the grid in errors, ``locate`` finds the recipe files. Raises
    :class:`RecipeError` naming the variant at fault.
    """
    sections = _sections(grid, source)
    _known(grid.reference, sections, f"{source}: reference")
    for group in grid.groups.values():
        _known(group.against or grid.reference, sections, f"{source}: the variant to compare with")
    for name in only:
        _known(name, sections, "--only")
    variants = {}
    for group_name, group in grid.groups.items():
        for name, section in group.variants.items():
            origin = _origin(name, sections, source)
            variants[name] = Variant(
                name=name,
                group=group_name,
                says=section.says,
                against=group.against or grid.reference,
                origin=origin,
                options=section.options,
                k=section.k,
                recipes=_recipes(grid, origin, sections[origin], source, locate),
            )
    _check_budget(list(variants.values()), source)
    return Plan(grid, variants, tuple(name for name in variants if not only or name in only))


def _sections(grid: Grid, source: str) -> dict[str, VariantSection]:
    """The variants by name, over all groups."""
    names = Counter(name for group in grid.groups.values() for name in group.variants)
    if not names:
        raise RecipeError(f"{source}: no variant in any group; give two or more")
    if PLAIN in names:
        raise RecipeError(f"{source}: '{PLAIN}' is plain decoding; give the variant another name")
    name, count = names.most_common(1)[0]
    if count > 1:
        raise RecipeError(f"{source}: variant '{name}' is in {count} groups; give each its name")
    return {n: s for group in grid.groups.values() for n, s in group.variants.items()}


def _origin(name: str, sections: Mapping[str, VariantSection], source: str) -> str:
    """The variant whose weights ``name`` decodes."""
    section = sections[name]
    if section.of is None:
        return name
    where = f"{source}: variant '{name}'"
    _known(section.of, sections, f"{where}: of")
    if section.base is not None or section.settings:
        raise RecipeError(f"{where}: takes its weights 'of' another; leave base and settings out")
    if sections[section.of].of is not None:
        raise RecipeError(f"{where}: '{section.of}' is not trained; name one that is in 'of'")
    if not section.options and section.k is None:
        raise RecipeError(f"{where}: is '{section.of}' again; give it options, or another k")
    return section.of


def _recipes(
    grid: Grid,
    name: str,
    section: VariantSection,
    source: str,
    locate: Callable[[Path], Path],
) -> dict[int, TrainRecipe]:
    """The recipe of a trained variant for every seed."""
    try:
        path = locate(section.base or grid.base)
        words = [*section.settings, *_words(grid.budget)]
        by_seed = {
            seed: load_train_recipe(path, [*words, f"train.seed={seed}"]) for seed in grid.seeds
        }
    except BreakevenError as error:
        raise RecipeError(f"{source}: variant '{name}': {error}") from None
    taken = {word.partition("=")[0] for word in section.settings} & {"train.seed", *_keys(grid)}
    if taken:
        raise RecipeError(
            f"{source}: variant '{name}' sets {min(taken)}, which the grid sets for all; leave it "
            "out of one of the two"
        )
    return by_seed


def _words(budget: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The budget as ``section.field=value`` words; JSON is YAML.

    >>> _words({"train": {"steps": 3, "max_minutes": None}})
    ['train.steps=3', 'train.max_minutes=null']
    """
    return [
        f"{section}.{field}={json.dumps(value)}"
        for section, fields in budget.items()
        for field, value in fields.items()
    ]


def _keys(grid: Grid) -> set[str]:
    return {word.partition("=")[0] for word in _words(grid.budget)}


def _check_budget(variants: Iterable[Variant], source: str) -> None:
    """One verifier and one budget for all, or the comparison says nothing."""
    first, *others = variants
    for other in others:
        for section, field in (("", "verifier"), *BUDGET):
            expected, found = (_value(v.recipe, section, field) for v in (first, other))
            if expected != found:
                key = f"{section}.{field}".lstrip(".")
                cure = "put it into the budget" if section else "compare variants of one verifier"
                raise RecipeError(
                    f"{source}: '{first.name}' has {key} = {expected}, '{other.name}' {found}; "
                    f"{cure}"
                )


def _value(recipe: TrainRecipe, section: str, field: str) -> Any:
    return getattr(getattr(recipe, section) if section else recipe, field)


def _known(name: str, names: Collection[str], what: str) -> None:
    if name not in names:
        raise RecipeError(f"{what}: no variant is called '{name}'; {nearest(name, names)}")
