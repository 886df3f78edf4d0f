"""A tiny loaded verifier and prompts, for the tests of measuring."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.core import Finish
from breakeven.data import artifact
from breakeven.data.contract import Contract
from breakeven.drafters.base import Drafter
from breakeven.drafters.scripted import Script
from breakeven.measure.trial import Decoding, Method
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import Loaded
from tiny import tiny_verifier

VOCAB = 64
TOKENS = 12


@dataclass(frozen=True)
class Row:
    """What measuring reads of an artifact's row."""

    id: str
    category: str
    prompt_ids: Sequence[int]


class Spelling:
    """A tokenizer that spells ids out."""

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return " ".join(f"t{token}" for token in tokens)


def prompts(
    count: int = 4, seed: int = 0, categories: Sequence[str] = ("chat", "code")
) -> list[Row]:
    rng = random.Random(seed)
    return [
        Row(
            f"p{i}",
            categories[i % len(categories)],
            tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(2, 8))),
        )
        for i in range(count)
    ]


def loaded(verifier: Verifier | None = None) -> Loaded:
    verifier = verifier or tiny_verifier(vocab=VOCAB)
    identity = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)
    return Loaded(verifier, Spelling(), identity, frozenset(), Path())


def decoding(verifier: Verifier | None = None, tokens: int = TOKENS) -> Decoding:
    return Decoding(verifier or tiny_verifier(vocab=VOCAB), frozenset(), tokens)


def script_of(decoding: Decoding, rows: Sequence[Row]) -> Script:
    """Plain decoding's answers, as the scripted drafters want them."""
    return {tuple(row.prompt_ids): tuple(decoding.run(Method(), row)[0].tokens) for row in rows}


class Wrapped(Verifier):
    """A verifier whose logits a subclass may spoil; counts its forward passes."""

    def __init__(self, inner: Verifier) -> None:
        self.inner, self.name, self.shape = inner, inner.name, inner.shape
        self.dtype, self.device, self.mode = inner.dtype, inner.device, inner.mode
        self.forwards = 0

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self.inner.embed(token_ids)

    def body(self, *args: Any, **kwargs: Any) -> Any:
        self.forwards += 1
        return self.inner.body(*args, **kwargs)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.inner.head(hidden)


def small_artifact(folder: Path, rows: Sequence[Row], who: Identity) -> Path:
    """An artifact of a verifier whose test split is ``rows``."""
    contract = Contract(
        verifier=who.name, weights_sha256=who.weights_sha256,
        tokenizer_sha256=who.tokenizer_sha256, chat_template_sha256=who.chat_template_sha256,
        max_prompt=512, max_continuation=256, dtype="float64", eos=(0,), seed=0,
        splits={"test": len(rows)}, tokens={"test": len(rows)}, categories={"chat": len(rows)},
        sources={}, libraries={},
    )  # fmt: skip
    whole = [artifact.Row(r.id, r.category, tuple(r.prompt_ids), (1,), Finish.STOP) for r in rows]
    artifact.write_artifact(folder, {"test": whole}, contract)
    return folder


def one_for_all(drafter: Drafter) -> Any:
    """A drafter factory that always gives the same one."""
    return lambda configuration: drafter
