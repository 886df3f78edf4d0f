"""The round with one wait gives what the readable round gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from breakeven.core import Draft, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Completion, Request
from breakeven.decode.resident import agreement
from breakeven.decode.round import accept
from breakeven.drafters.base import Drafter
from breakeven.drafters.fused import Fused
from breakeven.drafters.ngram import NGram
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.drafters.scripted import AntiOracle, FlipAt, Oracle, RandomDrafter, Short
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from tiny import tiny_config
from training import fit, objective_of, own_rows

EAGER = LeanVerifier.from_config(tiny_config(), dtype=torch.float64)
REQUESTS = [Request(f"r{i}", (i + 1, 5, 9, i), 5 + 4 * (i % 3)) for i in range(5)]


def decoded(
    verifier: LeanVerifier, drafter: Drafter | None, k: int, batch: int
) -> tuple[list[Completion], Ledger]:
    ledger = Ledger()
    answers = generate(verifier, REQUESTS, drafter=drafter, k=k, batch=batch, ledger=ledger)
    return sorted(answers, key=lambda c: c.id), ledger


def rounds(answers: Sequence[Completion]) -> list[list[tuple[int, int, int, int]]]:
    return [[(r.drafted, r.accepted, r.committed, r.free) for r in a.rounds] for a in answers]


def same(make: Callable[[], Drafter], k: int, batch: int) -> Ledger:
    """Both rounds, token for token and round for round; returns the resident one's ledger."""
    expected, _ = decoded(EAGER, make(), k, batch)
    found, ledger = decoded(GraphVerifier(EAGER, capture=False), make(), k, batch)
    assert [a.tokens for a in found] == [a.tokens for a in expected]
    assert rounds(found) == rounds(expected)
    return ledger


@pytest.fixture(scope="module")
def script() -> dict[tuple[int, ...], list[int]]:
    answers, _ = decoded(EAGER, None, 0, 1)
    return {r.prompt: a.tokens for r, a in zip(REQUESTS, answers, strict=True)}


@pytest.fixture(scope="module")
def gated() -> PeftBdObjective:
    rows = own_rows(EAGER, 3)
    objective = objective_of("peft-bd-gated", EAGER, rows)
    assert isinstance(objective, PeftBdObjective)
    fit(objective, rows, 30)
    return objective


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("k", [1, 4])
def test_scripted_chains(script: dict[tuple[int, ...], list[int]], k: int, batch: int) -> None:
    makers: list[Callable[[], Drafter]] = [
        lambda: Oracle(script, 64),
        lambda: AntiOracle(script, 64),
        lambda: FlipAt(script, 64, 1),
        lambda: Short(script, 64),
        lambda: RandomDrafter(64),
        NGram,
    ]
    for make in makers:
        same(make, k, batch)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_gated_blocks_and_the_fused_pass(gated: PeftBdObjective, k: int, batch: int) -> None:
    ledger = same(lambda: GatedPeftBD(gated.adapter, gated.plan), k, batch)
    assert {p.mode for p in ledger.passes if p.phase is not Phase.PREFILL} == {"static"}
    assert any(r.accepted > 1 for r in ledger.rounds) or k == 1
    for groups in (None, 1):
        ledger = same(partial(Fused, gated.adapter, gated.plan, groups=groups), k, batch)
        assert any(r.accepted for r in ledger.rounds)
        assert ledger.count(Phase.DRAFT) == 0


def test_what_needs_the_host_takes_the_readable_way(gated: PeftBdObjective) -> None:
    same(lambda: GatedPeftBD(gated.adapter, gated.plan, steps=2), 4, 2)
    own = PeftBD.untrained(EAGER, 3)
    same(lambda: PeftBD(own.adapter, own.plan), 3, 2)


def test_the_memory_of_one_drafters_cache_serves_the_next(
    script: dict[tuple[int, ...], list[int]],
) -> None:
    """Caches are kept for their graphs; requests of a batch are moved in them."""
    verifier, own = GraphVerifier(EAGER, capture=False), PeftBD.untrained(EAGER, 3)
    for make in (lambda: PeftBD(own.adapter, own.plan), NGram):
        for _ in range(2):
            found, _ = decoded(verifier, make(), 3, 3)
            assert {r.prompt: a.tokens for r, a in zip(REQUESTS, found, strict=True)} == script


def test_plain_decoding_is_the_same() -> None:
    expected, _ = decoded(EAGER, None, 0, 3)
    found, ledger = decoded(GraphVerifier(EAGER, capture=False), None, 0, 3)
    assert [a.tokens for a in found] == [a.tokens for a in expected]
    assert {p.mode for p in ledger.passes if p.phase is Phase.PLAIN} == {"static"}


@given(st.data())
def test_agreement_on_the_device_is_acceptance_on_the_host(data: st.DataObject) -> None:
    free = data.draw(st.integers(0, 1))
    batch, longest = data.draw(st.integers(1, 3)), data.draw(st.integers(max(free, 1), 5))
    token = st.integers(0, 2)
    drafts = []
    for _ in range(batch):
        tokens = data.draw(st.lists(token, min_size=free, max_size=longest))
        drafts.append(Draft(tuple(tokens), free=free))
    counts = [len(d.tokens) for d in drafts]
    widest = max(counts)
    ids = torch.tensor([[*d.tokens, *[0] * (widest - len(d.tokens))] for d in drafts]).long()
    width = widest + 1 - free
    choices = torch.tensor(
        data.draw(
            st.lists(
                st.lists(token, min_size=width, max_size=width), min_size=batch, max_size=batch
            )
        )
    )
    accepted, following = agreement(ids, choices, counts, free)
    for b, draft in enumerate(drafts):
        outcome = accept(draft, choices[b].tolist())
        assert (int(accepted[b]), int(following[b])) == (outcome.accepted, outcome.token)
