"""What a recipe of ``breakeven paper`` may say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from breakeven.config import Section, Seed
from breakeven.errors import nearest
from breakeven.measure.recipe import VerifierSection

Name = Literal["peft-bd", "anchored", "fastmtp"]
NAMES: tuple[Name, ...] = ("peft-bd", "anchored", "fastmtp")
"""The drafters of the paper: its own, the same with the root in the block, the baseline."""


class ArtifactSection(Section):
    """The data: an artifact's folder, and the recipe that makes it where it is missing."""

    path: Path = Path("assets/smollm2-135m")
    prepare: Path | None = None  # null: the artifact has to be there
    split: str = "test"  # the prompts that are decoded come from it


class TrainingSection(Section):
    """One drafter to train: its recipe, other settings of it, the minutes it may take."""

    recipe: Path
    settings: tuple[str, ...] = ()
    minutes: PositiveFloat | None = None  # null: as the recipe says


class DecodingSection(Section):
    """How many prompts are decoded, how long the answers get, how often."""

    prompts: PositiveInt = 20
    max_new_tokens: PositiveInt = 128
    repeats: PositiveInt = 1


class BenchSection(DecodingSection):
    """The engine's benchmark; a standard deviation over repeats needs three."""

    repeats: Annotated[int, Field(ge=3)] = 3


class PaceSection(Section):
    """What ``--dry-run`` computes its times from; ``machine`` says where they were measured."""

    machine: str = "two cores"
    step_ms: PositiveFloat = 25.0  # a plain step of the engine
    loop_step_ms: PositiveFloat = 60.0  # the same in the transformers loop
    training_step_s: PositiveFloat = 6.0  # an optimiser step, where no minutes are given


class PaperRecipe(Section):
    """The whole protocol."""

    verifier: VerifierSection = VerifierSection()
    artifact: ArtifactSection = ArtifactSection()
    train: dict[Name, TrainingSection]
    drafters: dict[str, Path] = Field(default_factory=dict)  # handed in, not trained
    loop: DecodingSection = DecodingSection()
    bench: BenchSection = BenchSection()
    profile: DecodingSection = DecodingSection()
    ablations: DecodingSection = DecodingSection()
    fastmtp_drafts: PositiveInt = 3  # K of the baseline
    seed: Seed = 0
    pace: PaceSection = PaceSection()

    @model_validator(mode="after")
    def _known_drafters(self) -> Self:
        for name in self.drafters:
            if name not in NAMES:
                raise ValueError(f"drafter '{name}' has no part in it; {nearest(name, NAMES)}")
        return self
