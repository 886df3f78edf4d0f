"""One way to decode: a drafter, from where, and how many tokens it drafts in each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven.errors import RecipeError

PLAIN = "ar"
"""The name of plain (autoregressive) decoding in every result file."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """``drafter`` is a registered name, ``k`` the draft tokens per round, ``path`` its weights.

    >>> Configuration("ngram", 4).name
    'ngram-k4'
    """

    drafter: str
    k: int
    path: Path | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise RecipeError(
                f"k = {self.k} for '{self.drafter}': give 1 or more; plain decoding always runs"
            )

    @property
    def name(self) -> str:
        """The configuration's name in every result file."""
        return f"{self.drafter}-k{self.k}"

    @property
    def folder(self) -> str | None:
        """Where the weights come from, for result files."""
        return str(self.path) if self.path else None


def parse_drafter(text: str) -> tuple[str, Path | None]:
    """``NAME`` or ``NAME=PATH`` as written on the command line.

    >>> parse_drafter("ngram")
    ('ngram', None)
    """
    name, equals, path = text.partition("=")
    if not name or (equals and not path):
        raise RecipeError(f"drafter '{text}': write NAME or NAME=PATH, e.g. fastmtp=runs/fastmtp")
    return name, Path(path) if path else None


def parse_lengths(text: str) -> list[int]:
    """Draft lengths separated by commas.

    >>> parse_lengths("2,4")
    [2, 4]
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise RecipeError(f"k '{text}': write whole numbers with commas, e.g. 2,4") from None


def cross(drafters: Iterable[str], lengths: Sequence[int]) -> list[Configuration]:
    """Every drafter (``NAME`` or ``NAME=PATH``) with every draft length.

    >>> [c.name for c in cross(["ngram"], [2, 4])]
    ['ngram-k2', 'ngram-k4']
    """
    parsed = [parse_drafter(text) for text in drafters]
    return check([Configuration(name, k, path) for name, path in parsed for k in lengths])


def check(configurations: Sequence[Configuration]) -> list[Configuration]:
    """The configurations, if there are any and no two share a name."""
    if not configurations:
        raise RecipeError("no drafter to measure: give at least one, e.g. --drafter ngram")
    name, count = Counter(c.name for c in configurations).most_common(1)[0]
    if count > 1:
        raise RecipeError(f"configuration '{name}' is given {count} times: give each one once")
    return list(configurations)
