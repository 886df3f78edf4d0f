"""What a recipe of ``breakeven bench`` or ``breakeven audit`` may say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt

from breakeven.config import Section, Seed
from breakeven.decode.policy.named import MOST
from breakeven.measure.configuration import (
    Configuration,
    check,
    parse_drafter,
    parse_lengths,
    shared_options,
)


class VerifierSection(Section):
    """Whose speed is measured: a name for ``load_verifier``, and where it runs."""

    name: str = "smollm2-135m"
    device: str = "cpu"
    mode: Literal["eager", "graph"] | None = None  # null: graph on CUDA
    weights: Literal["int8"] | None = None  # null: as they are; int8: another verifier
    threads: PositiveInt | None = None  # null: as many as physical cores


class PromptSection(Section):
    """On what: ``count`` rows of a split of an artifact, from all categories."""

    artifact: Path = Path("assets/smollm2-135m")
    split: str = "test"
    count: PositiveInt = 24


def _numbers(lengths: Any) -> Any:
    """``2,4,adaptive`` or a single number as a list."""
    if isinstance(lengths, int):
        return [lengths]
    return parse_lengths(lengths) if isinstance(lengths, str) else lengths


Length = Annotated[int, Field(gt=0, le=MOST)] | Literal["confidence", "adaptive"]
Lengths = Annotated[tuple[Length, ...], BeforeValidator(_numbers)]


class DrafterSection(Section):
    """A drafter, and for a trained one its folder; also written ``name`` or ``name=folder``."""

    name: str
    path: Path | None = None
    k: Lengths | None = None  # null: those of the recipe
    options: dict[str, Any] = Field(default_factory=dict)  # the drafter's own, docs/drafters.md


def _spelt_out(drafter: Any) -> Any:
    """``name=folder`` as a mapping; what is none of ours is left to the checks of the section."""
    if not isinstance(drafter, str):
        return drafter
    name, path = parse_drafter(drafter)
    return {"name": name, "path": path}


Drafter = Annotated[DrafterSection, BeforeValidator(_spelt_out)]


class TrialRecipe(Section):
    """What a benchmark and an audit have in common."""

    verifier: VerifierSection = VerifierSection()
    prompts: PromptSection = PromptSection()
    drafters: tuple[Drafter, ...] = (DrafterSection(name="ngram"),)
    k: Lengths = (2, 4)  # draft tokens per round, or a policy: of every drafter without its own
    max_new_tokens: PositiveInt = 128
    seed: Seed = 0  # of the choice of prompts, their order and the resampling

    @property
    def configurations(self) -> list[Configuration]:
        """Every drafter with its draft lengths; none or one twice is a :class:`RecipeError`."""
        return check(
            [
                Configuration.of(d.name, k, d.path, d.options)
                for d in self.drafters
                for k in d.k or self.k
            ]
        )

    def with_options(self, texts: Sequence[str]) -> Self:
        """The same with options from a command line, which win over the recipe's."""
        given = shared_options(texts, [d.name for d in self.drafters])
        drafters = tuple(
            d.model_copy(update={"options": d.options | given[d.name]}) for d in self.drafters
        )
        return self.model_copy(update={"drafters": drafters})

    def with_common_k(self) -> Self:
        """The same with the recipe's draft lengths for every drafter."""
        bare = tuple(d.model_copy(update={"k": None}) for d in self.drafters)
        return self.model_copy(update={"drafters": bare})


class BenchRecipe(TrialRecipe):
    """A recipe of ``breakeven bench``."""

    repeats: PositiveInt = 3
    calibration: Path | None = None  # prices for `adaptive`; null: each measures a few itself


class AuditPromptSection(PromptSection):
    """Fewer: every divergence is looked into, and none is expected."""

    count: PositiveInt = 8


class AuditRecipe(TrialRecipe):
    """A recipe of ``breakeven audit``."""

    prompts: AuditPromptSection = AuditPromptSection()
    k: Lengths = (4,)
    max_new_tokens: PositiveInt = 96
    level: Literal["L0", "L1", "L2"] = "L2"
