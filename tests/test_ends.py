"""Nothing is drafted behind the token that ends an answer, and drafting stops where it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from torch import Tensor

from breakeven.core import Draft, Phase, Verified
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.base import Policy
from breakeven.decode.policy.fixed import Confidence, Fixed
from breakeven.decode.policy.stopping import Stopping
from breakeven.decode.request import Request
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import Oracle
from breakeven.drafters.wrapper import Wrapper
from simulated import CURVE
from tiny import tiny_verifier

VERIFIER = tiny_verifier()
SEQUENTIAL = ["quantized", "layer-skip", "fastmtp"]
POLICIES: dict[str, Callable[[], Policy]] = {
    "fixed": lambda: Fixed(6),
    "confidence": lambda: Confidence(6),
    "adaptive": lambda: Adaptive(6, CURVE),
}


class Watched(Wrapper):
    """Remembers what was verified, and for which request."""

    def __init__(self, inner: Drafter) -> None:
        super().__init__(inner)
        self.seen: list[tuple[frozenset[int], Draft]] = []

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        for slot, outcome in enumerate(verified):
            self.seen.append((context.ends_of(slot), outcome.draft))
        super().observe(context, verified, hidden)


@pytest.fixture(scope="module")
def asked() -> list[Request]:
    """Requests whose answers end by a token of their own, each at another place."""
    prompts = [tuple(range(3 + i, 9 + 2 * i)) for i in range(6)]
    endless = [Request(str(i), p, 24) for i, p in enumerate(prompts)]
    answers = {c.id: c.tokens for c in generate(VERIFIER, endless)}
    return [
        replace(request, eos=frozenset({answers[request.id][place]}))
        for place, request in enumerate(endless, start=4)
    ]


@pytest.fixture(scope="module")
def answers(asked: list[Request]) -> dict[str, list[int]]:
    return {c.id: c.tokens for c in generate(VERIFIER, asked)}


def drafter_of(name: str, asked: list[Request]) -> Drafter:
    if name == "oracle":
        endless = [replace(r, eos=frozenset()) for r in asked]
        whole = {c.id: c.tokens for c in generate(VERIFIER, endless)}
        return Oracle({r.prompt: whole[r.id] for r in asked}, 64)
    found = untrained(name, VERIFIER, 6)
    assert found is not None
    return found


def test_a_chain_is_cut_behind_its_end_and_a_tree_is_not() -> None:
    chain = Draft((5, 2, 7, 2), confidences=(0.9, 0.8, 0.7, 0.6))
    assert chain.until({2}) == Draft((5, 2), confidences=(0.9, 0.8))
    assert chain.until(frozenset()) is chain
    tree = Draft((2, 6), parents=(-1, -1))
    assert tree.until({2}) is tree


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["oracle", *SEQUENTIAL])
def test_no_draft_goes_beyond_an_end(
    asked: list[Request], answers: dict[str, list[int]], name: str, policy: str, batch: int
) -> None:
    drafter = Watched(drafter_of(name, asked))
    done = generate(VERIFIER, asked, drafter=drafter, policy=POLICIES[policy](), batch=batch)
    assert {c.id: c.tokens for c in done} == answers
    assert any(draft.tokens for _, draft in drafter.seen) or policy != "fixed"
    for ends, draft in drafter.seen:
        assert ends.isdisjoint(draft.tokens[:-1])
    if name == "oracle" and policy == "fixed":
        assert any(not ends.isdisjoint(draft.tokens) for ends, draft in drafter.seen)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_token_by_token_drafter_makes_no_pass_for_nothing(
    asked: list[Request], name: str
) -> None:
    """Each pass drafts a token that is verified, but where the answer's budget ends."""
    ledger = Ledger()
    list(generate(VERIFIER, asked, drafter=drafter_of(name, asked), k=6, ledger=ledger))
    assert ledger.count(Phase.DRAFT) == sum(r.drafted for r in ledger.rounds)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_drafter_stops_when_the_policy_has_enough(asked: list[Request], name: str) -> None:
    class Two(Fixed):
        """Two tokens are enough."""

        def enough(self, confidences: Sequence[Sequence[float]]) -> bool:
            return len(confidences[0]) >= 2

    ledger = Ledger()
    list(generate(VERIFIER, asked, drafter=drafter_of(name, asked), policy=Two(6), ledger=ledger))
    assert max(r.drafted for r in ledger.rounds) == 2
    assert ledger.count(Phase.DRAFT) <= 2 * len(ledger.rounds)
    assert all(len(r.confidences) == r.drafted for r in ledger.rounds)
    assert all(0 <= word <= 1 for r in ledger.rounds for word in r.confidences)


def test_a_confident_policy_saves_passes_and_not_only_rows(asked: list[Request]) -> None:
    ledger = Ledger()
    drafter = drafter_of("fastmtp", asked)
    list(generate(VERIFIER, asked, drafter=drafter, policy=Confidence(6, 0.3), ledger=ledger))
    assert ledger.count(Phase.DRAFT) < 4 * len(ledger.rounds)


def test_a_draft_that_has_ended_earns_nothing_more() -> None:
    seen: list[Sequence[Sequence[float]]] = []

    def enough(confidences: Sequence[Sequence[float]]) -> bool:
        seen.append(confidences)
        return False

    context = Context(VERIFIER, [[1], [1]], VERIFIER.new_cache(2, 4), Ledger())
    context.ends, context.enough = [frozenset({7}), frozenset({8})], enough
    assert not context.done([[7, 5], [7, 5]], [[0.9, 0.8], [0.7, 0.6]])
    assert context.done([[7, 5], [3, 8]], [[0.9, 0.8], [0.7, 0.6]])
    assert seen == [[(), [0.7, 0.6]]]
    stopping = Stopping()
    alone = stopping.enough([[0.99]], [0.5])
    beside = stopping.enough([[0.99], ()], [0.5])
    assert (alone, beside) == (False, True)
