"""One suite for every trainable drafter on every family: what any of them must do.

The drafters are those of :data:`breakeven.train.methods.METHODS`: a new one joins by itself.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Context
from breakeven.train.loss import token_losses
from breakeven.train.methods import METHODS
from breakeven.train.objective import Objective
from breakeven.train.randomness import generator_of
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.rows import chain
from tiny import tiny_verifier
from training import decoded, fit, objective_of, own_rows, shaken

FAMILIES = ("llama", "qwen3")
EVERY_ROOT = {"anchors": 64}
pytestmark = [pytest.mark.parametrize("family", FAMILIES), pytest.mark.parametrize("name", METHODS)]


def everywhere(name: str, verifier: LeanVerifier, rows: list[Row]) -> Objective:
    """An objective that scores every root of a text."""
    return objective_of(name, verifier, rows, **({} if name == "fastmtp" else EVERY_ROOT))


def proposed(objective: Objective, verifier: LeanVerifier, text: list[int], root: int) -> list[int]:
    """What the deployed drafter proposes when token ``root`` of the text was committed last."""
    drafter = objective.drafter()
    drafter.reserve(1, len(text) + 32)
    cache = verifier.new_cache(1, len(text) + 32)
    context = Context(verifier, [text[: root + 1]], cache, Ledger())
    rows = chain(torch.tensor([text[:root]]), cache.lengths)
    out = verifier.run(Phase.PREFILL, rows, cache, context.ledger)
    cache.commit(root)
    drafter.begin(context, 0, out.hidden if drafter.needs_hidden else None)
    return list(drafter.propose(context, objective.drafts)[0].tokens)


def test_one_sample_is_learned_to_the_full_prefix(name: str, family: str) -> None:
    verifier = tiny_verifier(family)
    rows = own_rows(verifier, 1, new_tokens=20, seed=9)
    objective = everywhere(name, verifier, rows)
    objective.eval()  # every target is to be guessed, as in drafting
    fit(objective, rows, 150)
    assert decoded(objective, verifier, rows).survival == (1.0,) * objective.drafts


def test_training_and_decoding_guess_the_same(name: str, family: str) -> None:
    """Teacher-forced leading right guesses, counted at every root, are the deployed ones."""
    verifier = tiny_verifier(family)
    rows = own_rows(verifier, 2)
    objective = everywhere(name, verifier, rows)
    objective.eval()
    fit(objective, rows, 6)
    with torch.no_grad():
        score = objective(rows, generator_of(0, 0)).score
    survived = [0] * len(score.survived)
    for row in rows:
        text = [*row.prompt_ids, *row.continuation_ids]
        for root in range(len(row.prompt_ids), len(text) - 1):
            guesses = proposed(objective, verifier, text, root)[score.free :]
            for k, (guess, token) in enumerate(
                zip(guesses, text[root + 1 + score.free :], strict=False)
            ):
                if guess != token:
                    break
                survived[k] += 1
    assert survived == score.survived.tolist()
    assert sum(survived) > 0


def test_a_future_token_changes_no_earlier_logit(
    name: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last token of a text is a label and nothing else; one in the middle is read, too."""
    verifier = tiny_verifier(family)
    row = own_rows(verifier, 1)[0]
    objective = shaken(everywhere(name, verifier, [row]))
    objective.eval()
    seen: list[Tensor] = []

    def recorded(logits: Tensor, *rest: Any, **more: Any) -> Tensor:
        seen.append(logits.detach())
        return token_losses(logits, *rest, **more)

    monkeypatch.setattr(sys.modules[type(objective).judge.__module__], "token_losses", recorded)

    def logits(at: int | None) -> Tensor:
        tokens = list(row.continuation_ids)
        if at is not None:
            tokens[at] = (tokens[at] + 1) % 64
        changed = dataclasses.replace(row, id=f"changed {at}", continuation_ids=tuple(tokens))
        seen.clear()
        objective([changed], generator_of(0, 0))
        return torch.cat(seen)

    plain = logits(None)
    assert torch.equal(plain, logits(len(row.continuation_ids) - 1))
    assert not torch.allclose(plain, logits(4))


def test_the_verifier_is_bit_equal_after_training(name: str, family: str) -> None:
    """T27: adapter attached but off, and no weight has moved."""
    verifier = tiny_verifier(family)
    rows = own_rows(verifier, 1)
    ids = torch.tensor([[*rows[0].prompt_ids, *rows[0].continuation_ids]])

    def logits() -> Tensor:
        cache = verifier.new_cache(1, ids.shape[1])
        out = verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger()).logits
        assert out is not None
        return out

    before = logits()
    weights = {
        f"{i}.{key}": tensor.clone()
        for i, block in enumerate(verifier.blocks)
        for key, tensor in block.state_dict().items()
    }
    objective = everywhere(name, verifier, rows)
    fit(objective, rows, 3)
    request = Request("a", rows[0].prompt_ids, 12)
    answers = generate(verifier, [request], drafter=objective.drafter(), k=3)
    assert tuple(next(iter(answers)).tokens) == rows[0].continuation_ids[:12]
    assert torch.equal(before, logits())
    for i, block in enumerate(verifier.blocks):
        for key, tensor in block.state_dict().items():
            assert torch.equal(tensor, weights[f"{i}.{key}"])
