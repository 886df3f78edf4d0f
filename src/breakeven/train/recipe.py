"""Recipes of training: strict sections, one recipe class per method.

Every field is documented by its comment; ``breakeven train --help`` and
``recipes/smollm2-135m/`` show them in use.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from breakeven.config import Section, Seed
from breakeven.drafters.block_plan import MOST_MASKS, Anchoring, BlockPlan, Labels
from breakeven.train.blocks import Starts
from breakeven.train.precision import Precision
from breakeven.train.trackers import TrackerName
from breakeven.train.weighting import Weighting

Masks = Annotated[int, Field(ge=1, le=MOST_MASKS)]


class LossSettings(Section):
    """Which blocks of a text are guessed, and what a guess costs."""

    anchors: PositiveInt = 32  # blocks of each text at each step, at most
    starts: Starts = "random"  # where they begin: anywhere, or tiling the continuation
    mask_ratio: tuple[float, float] = (1.0, 1.0)  # hidden share of a block: U(low, high)
    weighting: Weighting = "geometric"  # of the offsets; readings of "linear-prefix objective"
    gamma: float = Field(0.9, gt=0.0, le=1.0)
    soft: float = Field(0.0, ge=0.0, le=1.0)  # share of the loss that is KL to the verifier
    tv: float = Field(0.0, ge=0.0, le=1.0)  # share that is TV to it; the rest is cross-entropy

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.soft + self.tv > 1:
            raise ValueError(f"soft + tv = {self.soft + self.tv:g}: give shares of 1 in all")
        return self


class BlockSettings(LossSettings):
    """What both PEFT-BD methods share (ALGORITHMS 1); the defaults differ."""

    gated: ClassVar[bool]

    masks: Masks = 3  # D: mask rows of a block
    causal: bool = False  # masks see earlier masks only; a draft pass is then no wider than K
    labels: Labels = "shift"  # a row names its own token (same) or the one behind it (shift)
    anchoring: Anchoring = "first_from_verifier"
    rank: PositiveInt = 16
    alpha: PositiveFloat = 32.0
    layers: PositiveInt | None = None  # LoRA in the last so many layers; null: in all
    late: bool = False  # masks enter where the LoRA begins, not with the embeddings ("last-k")

    @property
    def plan(self) -> BlockPlan:
        """How the trained drafter drafts."""
        last = self.layers if self.late else None
        return BlockPlan(self.masks, self.causal, self.labels, self.anchoring, self.gated, last)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        low, high = self.mask_ratio
        if not 0 < low <= high <= 1:
            raise ValueError(f"mask_ratio {[low, high]}: give 0 < low <= high <= 1")
        if self.late and (self.layers is None or low < 1):
            raise ValueError("late: give layers, and mask_ratio [1, 1]")
        if self.plan.fault:
            raise ValueError(self.plan.fault)
        return self


class PeftBdSettings(BlockSettings):
    """``peft-bd``: the paper's choices, and ours where it leaves them open."""

    gated: ClassVar[bool] = False

    masks: Masks = 16
    labels: Labels = "same"
    anchoring: Anchoring = "none"
    starts: Starts = "grid"
    mask_ratio: tuple[float, float] = (0.3, 1.0)


class GatedSettings(BlockSettings):
    """``peft-bd-gated``: what works."""

    gated: ClassVar[bool] = True

    soft: float = Field(1.0, ge=0.0, le=1.0)


class BonusSettings(LossSettings):
    """``peft-bd-fused``: the bonus module behind a trained ``peft-bd-gated`` adapter."""

    adapter: str | None = None  # the folder of that adapter; null: the one that ships
    rank: PositiveInt = 64
    anchors: PositiveInt = 64
    soft: float = Field(1.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _all_masked(self) -> Self:
        if self.mask_ratio != (1.0, 1.0):
            raise ValueError("mask_ratio: a pass that drafts masks everything; give [1, 1]")
        return self


class FastMtpSettings(Section):
    """``fastmtp`` (ALGORITHMS 2)."""

    steps: PositiveInt = 3  # K: recursive steps trained
    weights: tuple[PositiveFloat, ...] = (0.51, 0.31, 0.18)  # loss weight of each step
    vocabulary: PositiveInt | None = 8192  # most frequent tokens of the artifact; null: all
    attention: Literal["cross_step", "plain"] = "cross_step"  # as in decoding, or as published
    start: Literal["regression", "copy", "random"] = "regression"  # what the layer starts from
    start_rows: PositiveInt = 64  # texts the regression looks at
    soft: float = Field(1.0, ge=0.0, le=1.0)  # share of the loss that is KL to the verifier

    @model_validator(mode="after")
    def _a_weight_for_every_step(self) -> FastMtpSettings:
        if len(self.weights) != self.steps:
            raise ValueError(f"{self.steps} steps need {self.steps} weights")
        return self


class DataSettings(Section):
    """Which rows of the artifact are trained on, and what is remembered of them."""

    rows: PositiveInt | None = None  # so many usable rows, of all categories; null: all
    max_tokens: PositiveInt | None = None  # leave out longer texts (prompt + continuation)
    clean_mb: PositiveInt = 2048  # memory for the verifier's states of texts seen before
    disk_mb: int = Field(0, ge=0)  # the same on disk, for later epochs and runs; 0: nothing
    clean_dtype: Literal["float16", "bfloat16", "float32", "native"] = "float16"


class LoopSettings(Section):
    """Optimisation (AdamW, warm-up, cosine) and when to stop: steps or minutes, the first."""

    steps: PositiveInt = 250
    max_minutes: PositiveFloat | None = None  # training ends (and the rate decays) by then
    rows_per_step: PositiveInt = 8
    rows_per_pass: PositiveInt = 1  # rows of one forward pass; the gradients add up
    lr: PositiveFloat = 1e-3
    warmup: float = Field(0.05, ge=0.0, lt=1.0)  # share of the training
    weight_decay: float = Field(0.0, ge=0.0)
    betas: tuple[float, float] = (0.9, 0.95)
    clip: PositiveFloat = 1.0  # largest gradient norm
    precision: Precision = "auto"  # of the frozen passes; trained weights stay fp32
    seed: Seed = 0
    checkpoint_every: PositiveInt = 20  # steps
    log_every: PositiveInt = 5  # steps
    trackers: tuple[TrackerName, ...] = ("tensorboard",)  # besides metrics.jsonl
    shard: bool = False  # several processes: split weights and optimizer (FSDP2), do not copy (DDP)


class EvaluateSettings(Section):
    """Validation: real acceptance (decoding) and simulated acceptance (teacher-forced)."""

    every: PositiveInt | None = None  # steps between evaluations; null: only at the end
    prompts: PositiveInt = 16  # validation prompts decoded
    max_new_tokens: PositiveInt = 64
    batch: PositiveInt = 8  # decoded together


class TrainRecipe(Section):
    """What every method's recipe has."""

    drafter: str
    verifier: str = "smollm2-135m"
    saved: Literal["bfloat16", "float32"] = "bfloat16"  # type of the drafter's weights on disk
    data: DataSettings = DataSettings()
    train: LoopSettings = LoopSettings()
    evaluate: EvaluateSettings = EvaluateSettings()


class PeftBdRecipe(TrainRecipe):
    """A recipe of ``peft-bd``."""

    drafter: Literal["peft-bd"] = "peft-bd"
    method: PeftBdSettings = PeftBdSettings()


class GatedRecipe(TrainRecipe):
    """A recipe of ``peft-bd-gated``."""

    drafter: Literal["peft-bd-gated"] = "peft-bd-gated"
    method: GatedSettings = GatedSettings()


class BonusRecipe(TrainRecipe):
    """A recipe of the bonus module of ``peft-bd-fused``."""

    drafter: Literal["peft-bd-fused"] = "peft-bd-fused"
    method: BonusSettings = BonusSettings()


class FastMtpRecipe(TrainRecipe):
    """A recipe of ``fastmtp``."""

    drafter: Literal["fastmtp"] = "fastmtp"
    method: FastMtpSettings = FastMtpSettings()
