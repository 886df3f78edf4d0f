"""Models and requests at the edge of what there can be: the tokens are plain decoding's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch

from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fused import Fused
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import METHODS, untrained
from breakeven.measure.rescore import rescore
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from simulated import CURVE
from tiny import tiny_verifier


@cache
def broken(value: float) -> LeanVerifier:
    """A model with one row of its head out of order."""
    verifier = tiny_verifier(dtype=torch.float32)
    with torch.no_grad():
        verifier.head_weight[5] = value
    return verifier


MODELS: dict[str, Callable[[], LeanVerifier]] = {
    "one token": cache(lambda: tiny_verifier(vocab=1)),
    "eight positions": cache(lambda: tiny_verifier(max_position_embeddings=8)),
    "nan": lambda: broken(math.nan),
}


def drafter_of(name: str, verifier: LeanVerifier) -> Drafter:
    gated = GatedPeftBD.untrained(verifier, 6)
    known: dict[str, Drafter] = {
        "early-exit": EarlyExit(verifier.shape.layers, 1),
        "peft-bd-fused": Fused(gated.adapter, gated.plan),
    }
    found = known.get(name) or untrained(name, verifier, 6)
    assert found is not None
    return found


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("model", MODELS)
def test_every_method_answers_as_plain_decoding_does(model: str, name: str) -> None:
    """Requests of all lengths, each up to the end of the context, alone and in a batch."""
    eager = MODELS[model]()
    longest, vocabulary = eager.shape.max_positions, eager.shape.vocab_size
    prompts = [tuple(i % vocabulary for i in range(n)) for n in range(1, min(longest, 8))]
    asked = [Request(str(len(p)), p, 12) for p in prompts]
    expected = {c.id: c.tokens for c in generate(eager, asked)}
    assert all(len(t) == min(12, longest - int(n)) for n, t in expected.items())
    for verifier in (eager, GraphVerifier(eager, capture=False)):
        drafter = drafter_of(name, verifier)
        for policy, batch in ((Fixed(6), 1), (Fixed(6), 3), (Adaptive(6, CURVE), 3)):
            got = generate(verifier, asked, drafter=drafter, policy=policy, batch=batch)
            assert {c.id: c.tokens for c in got} == expected


def test_the_only_token_there_is_has_no_rival() -> None:
    scores = rescore(MODELS["one token"](), (0,), (0, 0))
    assert scores.best == (0, 0)
    assert scores.margin == scores.gap == (0.0, 0.0)
