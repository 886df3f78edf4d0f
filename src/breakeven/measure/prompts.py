"""Held-out prompts: the part of an artifact's row that measuring needs, and a fair choice."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Protocol, TypeVar

from breakeven.counting import counted
from breakeven.errors import DataError


class Prompt(Protocol):
    """What measuring reads of an artifact's row."""

    @property
    def id(self) -> str:
        """A name, unique in the artifact."""

    @property
    def category(self) -> str:
        """The kind of task."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """The rendered prompt's token ids."""


P = TypeVar("P", bound=Prompt)


def choose(rows: Iterable[P], count: int, seed: int = 0) -> list[P]:
    """``count`` rows drawn by ``seed``, taking the categories in turn so that all are there.

    Fewer rows than asked for are an error that names how many there are.
    """
    shelves: dict[str, list[P]] = defaultdict(list)
    for row in rows:
        shelves[row.category].append(row)
    generator = random.Random(seed)
    for category in sorted(shelves):
        generator.shuffle(shelves[category])
    in_turn = zip_longest(*(shelves[category] for category in sorted(shelves)))
    picked = [row for row in chain.from_iterable(in_turn) if row is not None]
    if not 1 <= count <= len(picked):
        raise DataError(
            f"{counted(count, 'prompt')} asked for (--prompts): this split has {len(picked)}; "
            "give 1 to "
            f"{len(picked)}, or prepare a larger split"
        )
    return picked[:count]


def fingerprint(prompts: Iterable[Prompt]) -> str:
    """A hash of ids and tokens, so that a resumed run cannot mix two sets of prompts."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(f"{prompt.id}:{','.join(map(str, prompt.prompt_ids))};".encode())
    return digest.hexdigest()[:16]
