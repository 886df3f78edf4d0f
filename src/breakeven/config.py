"""Strict recipes: YAML files with ``section.field=value`` overrides, unknown keys are errors.

A room declares its sections as :class:`Section` subclasses (pydantic models); this module only
reads, merges, checks and writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from breakeven.errors import RecipeError, nearest


class Section(BaseModel):
    """A frozen group of settings in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


R = TypeVar("R", bound=Section)

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed that every random generator in use takes."""


def load_recipe(kind: type[R], path: Path | str | None = None, overrides: Sequence[str] = ()) -> R:
    """Read a recipe, apply ``section.field=value`` overrides, and check it.

    Values are YAML scalars or lists (``train.lr=1e-3``, ``decode.k=[2,4]``).

    >>> from pydantic import create_model
    >>> Train = create_model("Train", __base__=Section, steps=(int, 10))
    >>> Recipe = create_model("Recipe", __base__=Section, train=(Train, Train()))
    >>> load_recipe(Recipe, overrides=["train.steps=3"]).train.steps
    3
    >>> load_recipe(Recipe, overrides=["train.stpes=3"])
    Traceback (most recent call last):
    breakeven.errors.RecipeError: recipe: unknown key 'train.stpes'; did you mean 'steps'?
    """
    source = str(path) if path is not None else "recipe"
    tree = {} if path is None else _read(Path(path))
    for override in overrides:
        _apply(tree, override)
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise RecipeError(f"{source}: {_explain(kind, tree, error)}") from None


def write_recipe(recipe: Section, path: Path) -> None:
    """Write the resolved recipe; reading the file back gives an equal one."""
    text = yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such recipe; `ls recipes/` lists the shipped ones") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{path}: not readable as YAML ({_one_line(error)})") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of sections, not a {type(tree).__name__}")
    return tree


def _apply(tree: dict[str, Any], override: str) -> None:
    key, value = parse_setting(override, "override", "section.field=value, e.g. train.steps=100")
    *parents, leaf = key.split(".")
    node = tree
    for parent in parents:
        below = node.setdefault(parent, {})
        if not isinstance(below, dict):
            raise RecipeError(f"override '{override}': '{parent}' is a value, not a section")
        node = below
    node[leaf] = value


def parse_setting(text: str, what: str, form: str) -> tuple[str, Any]:
    """The name and the YAML value of ``name=value``; ``what`` and ``form`` are for the error.

    >>> parse_setting("longest=5", "option", "NAME=VALUE")
    ('longest', 5)
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise RecipeError(f"{what} '{text}': write {form}")
    try:
        return key, _scalar(value)
    except yaml.YAMLError as error:
        raise RecipeError(f"{what} '{text}': {_one_line(error)}") from None


def _scalar(text: str) -> Any:
    """YAML value of ``text``; also reads ``1e-3``, which YAML 1.1 takes for a string.

    >>> _scalar("1e-3"), _scalar('"1e-3"')
    (0.001, '1e-3')
    """
    value = yaml.safe_load(text)
    if value == text.strip():  # not quoted
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _explain(kind: type[BaseModel], tree: dict[str, Any], error: ValidationError) -> str:
    """The first problem in one line; an unknown key comes before one that is missing."""
    problem = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    where = _place(tree, problem["loc"])
    if problem["type"] == "missing":
        where = [*where, str(problem["loc"][-1])]
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{'.'.join(where)}'; {nearest(where[-1], _fields(kind, where[:-1]))}"
    return f"'{'.'.join(where)}' = {problem['input']!r}: {problem['msg']}"


def _place(tree: Any, found: Sequence[str | int]) -> list[str]:
    """The keys and list indexes of a problem, without pydantic's words for a union's members.

    >>> _place({"k": [0]}, ("k", 0, "constrained-int"))
    ['k', '0']
    """
    where = []
    for part in found:
        below = tree.get(part) if isinstance(tree, dict) else None
        if isinstance(part, int) and isinstance(tree, list | tuple) and part < len(tree):
            below = tree[part]
        if isinstance(part, int) or (isinstance(tree, dict) and part in tree):
            where.append(str(part))
            tree = below
    return where


def _fields(kind: type[BaseModel], where: Sequence[str]) -> list[str]:
    """Field names of the section at ``where``; list indexes and dict keys are stepped over."""
    for name in where:
        field = kind.model_fields.get(name)
        kind = kind if field is None else _section(field.annotation) or kind
    return list(kind.model_fields)


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as ``list[Drafter] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inside = (_section(part) for part in get_args(annotation))
    return next((found for found in inside if found is not None), None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
