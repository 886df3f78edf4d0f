"""The grid file: which variants of a recipe are compared, and with what budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveInt, StringConstraints

from breakeven.config import Section, Seed

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
"""Names of variants are names of folders."""


class VariantSection(Section):
    """A variant: trained (``base``, ``settings``), or another one's weights decoded differently.

    Both kinds may have ``options``: keywords of the drafter's ``load``.
    """

    says: str = ""  # what is different, in a few words, for the table
    base: Path | None = None  # another training recipe than the grid's
    settings: tuple[str, ...] = ()  # section.field=value, over the recipe
    of: Name | None = None  # not trained: decodes the weights of this variant
    options: dict[str, Any] = Field(default_factory=dict)
    k: PositiveInt | None = None  # draft tokens per round; null: those it was trained for


class GroupSection(Section):
    """Variants that answer one question. ``against`` is what they are compared with."""

    about: str = ""  # the question, and what the paper says or leaves open
    against: Name | None = None  # null: the grid's reference
    variants: dict[Name, VariantSection]


class DecodeSection(Section):
    """The held-out prompts, and how they are decoded (each alone, greedily)."""

    split: str = "test"
    prompts: PositiveInt = 48
    max_new_tokens: PositiveInt = 96
    seed: Seed = 0  # of the choice of prompts, their order and the resampling


class Grid(Section):
    """An ablation. ``budget`` is part of a training recipe and wins over every variant's."""

    base: Path
    budget: dict[str, dict[str, Any]] = Field(default_factory=dict)
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    reference: Name
    decode: DecodeSection = DecodeSection()
    groups: dict[str, GroupSection]
