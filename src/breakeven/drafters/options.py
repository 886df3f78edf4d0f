"""A drafter's own options, as people write them, held against what its maker takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from breakeven.errors import DrafterError, nearest

GIVEN = ("folder", "verifier", "identity")
"""Parameters of a maker that are no options."""
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check_options(name: str, maker: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse an option that ``maker`` has no parameter for, or a value of another type.

    A maker with ``**options`` takes any and checks them itself. Raises :class:`DrafterError`.

    >>> def load(folder: str, top: int = 3) -> None: ...
    >>> check_options("tree", load, {"top": "many"})
    Traceback (most recent call last):
    breakeven.errors.DrafterError: 'tree': option top = many: give a whole number
    """
    taken = inspect.signature(maker).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return
    allowed = [n for n in taken if n not in GIVEN]
    types = hints(maker) if options else {}
    for option, value in sorted(options.items()):
        if option not in allowed:
            known = nearest(option, allowed) if allowed else "it takes none"
            raise DrafterError(f"'{name}' has no option '{option}'; {known}")
        try:
            TypeAdapter(types.get(option, Any)).validate_python(value, strict=True)
        except ValidationError:
            raise DrafterError(
                f"'{name}': option {option} = {value}: give {described(types[option])}"
            ) from None


def hints(maker: Callable[..., Any]) -> dict[str, Any]:
    """The types of a maker's parameters; none where a plug-in's cannot be resolved."""
    function = maker.__init__ if isinstance(maker, type) else maker  # type: ignore[misc]
    try:
        return get_type_hints(function)
    except NameError:
        return {}


def described(kind: Any) -> str:
    """A type in words; what may be left out is not said.

    >>> described(int | Literal["auto"] | None), described(list[int])
    ("a whole number or 'auto'", 'a list of whole numbers')
    """
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(described(k) for k in get_args(kind) if k is not NoneType)
    if get_origin(kind) is Literal:
        return " or ".join(repr(value) for value in get_args(kind))
    if get_origin(kind) is list:
        return f"a list of {described(get_args(kind)[0]).removeprefix('a ')}s"
    return WORDS.get(kind, str(kind))
