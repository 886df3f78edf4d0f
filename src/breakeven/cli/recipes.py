"""One recipe from a command line: a file, ``section.field=value`` words, and flags, which win."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from breakeven.config import Section, load_recipe

R = TypeVar("R", bound=Section)

RecipeWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RECIPE|SETTING",
        help="A recipe (`FILE.yaml`) first, then settings (`section.field=value`) that win over "
        "it. Flags win over both.",
    ),
]


def is_recipe(word: str) -> bool:
    """Whether a word names a recipe file.

    >>> is_recipe("bench.yaml"), is_recipe("prompts.count=8"), is_recipe("train.recipe=mtp.yaml")
    (True, False, False)
    """
    return word.endswith((".yaml", ".yml")) and ("=" not in word or Path(word).is_file())


def resolved(
    kind: type[R], context: typer.Context, words: Sequence[str] | None, flags: Mapping[str, str]
) -> R:
    """The recipe a command line asks for.

    ``flags`` maps the command's parameters to fields of the recipe; only those that were typed
    count, so that a flag's default does not win over the file.
    """
    words = list(words or ())
    file = words.pop(0) if words and is_recipe(words[0]) else None
    typed = [
        f"{field}={json.dumps(_plain(context.params[flag]), ensure_ascii=False)}"
        for flag, field in flags.items()
        if is_typed(context, flag)
    ]
    return load_recipe(kind, file, [*words, *typed])


def is_typed(context: typer.Context, flag: str) -> bool:
    """Whether a flag stands on the command line, and has not merely its default."""
    source = context.get_parameter_source(flag)
    return source is not None and source.name == "COMMANDLINE"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
