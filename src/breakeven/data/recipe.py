"""What a recipe of ``breakeven prepare`` may say."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from breakeven.config import Section, Seed
from breakeven.data.sources.registry import Sources


class VerifierSection(Section):
    """Whose continuations are wanted: a name for ``load_verifier``, and where it runs."""

    name: str = "smollm2-135m"
    device: str = "cpu"


class RenderSection(Section):
    """``max_prompt`` tokens at most; longer prompts are dropped and counted."""

    max_prompt: PositiveInt = 512


class SplitSection(Section):
    """Rows kept out of training, and the seed that chooses them."""

    validation: NonNegativeInt = 200
    test: NonNegativeInt = 200
    seed: Seed = 0


class GenerateSection(Section):
    """How continuations are made; nothing here but ``max_new_tokens`` changes them.

    ``workers`` decode side by side, each with ``threads`` threads and its own ``batch`` of
    requests. On a busy machine two workers of one thread are faster than one of two.
    """

    max_new_tokens: PositiveInt = 256
    batch: PositiveInt = 32
    workers: PositiveInt = 1
    threads: PositiveInt | None = None


class PrepareRecipe(Section):
    """The whole recipe."""

    verifier: VerifierSection = VerifierSection()
    sources: Sources = Sources()
    render: RenderSection = RenderSection()
    split: SplitSection = SplitSection()
    generate: GenerateSection = GenerateSection()
