"""Token trees: layout, acceptance, the cache after it, and equality with plain decoding (T7)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch

from breakeven.core import Draft, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.base import Policy
from breakeven.decode.request import Request
from breakeven.decode.round import accept, verify
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fused import Fused
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.scripted import Script, Scripted
from breakeven.drafters.tree import Tree, best_first
from breakeven.verifier.interface import Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import chain, tree
from simulated import CURVE, Dice
from tiny import tiny_verifier

VOCAB = 64


class RandomTrees(Scripted):
    """Random trees of at most K nodes; ``true_share`` of the nodes say what is true there."""

    name = "random-trees"

    def __init__(self, script: Script, top: int, depth: int, true_share: float, seed: int = 0):
        super().__init__(script, VOCAB)
        self._top, self._depth, self._true = top, depth, true_share
        self._random = random.Random(seed)

    def propose(self, context: Context, k: int) -> list[Draft]:
        return [self._tree(self._next(tokens, self._depth), k) for tokens in context.tokens]

    def _tree(self, truth: list[int], k: int) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        for _ in range(k):
            open_nodes = [-1, *(i for i, d in enumerate(depths) if d < self._depth)]
            parent = self._random.choice(open_nodes)
            siblings = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
            if len(siblings) >= self._top:
                continue
            depth = 0 if parent < 0 else depths[parent]
            right = self._random.random() < self._true
            token = truth[depth] if right else self._random.randrange(VOCAB)
            if token not in siblings:
                tokens.append(token)
                parents.append(parent)
                depths.append(depth + 1)
        return Draft(tuple(tokens), parents=tuple(parents))


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return tiny_verifier()


def requests(seed: int = 0) -> list[Request]:
    rng = random.Random(seed)
    return [
        Request(
            str(i),
            tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(1, 12))),
            rng.randrange(2, 24),
        )
        for i in range(8)
    ]


def plain(verifier: Verifier, asked: Sequence[Request]) -> dict[str, list[int]]:
    return {c.id: c.tokens for c in generate(verifier, asked)}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("true_share", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("top", "depth"), [(1, 4), (2, 2), (3, 3), (4, 4)])
def test_t7_random_trees_give_plain_decodings_tokens(
    verifier: Verifier, top: int, depth: int, true_share: float, batch: int
) -> None:
    asked = requests()
    expected = plain(verifier, asked)
    script = {r.prompt: expected[r.id] for r in asked}
    drafter = RandomTrees(script, top, depth, true_share)
    done = list(generate(verifier, asked, drafter=drafter, k=12, batch=batch))
    assert {c.id: c.tokens for c in done} == expected
    if true_share > 0.5:
        assert sum(r.accepted for c in done for r in c.rounds) > 0


@pytest.mark.parametrize("native", [True, False])
def test_t7_in_fp32_and_natively(native: bool) -> None:
    model = tiny_verifier(dtype=torch.float32, hidden=64, native=native)
    asked = requests(2)
    expected = plain(model, asked)
    drafter = RandomTrees({r.prompt: expected[r.id] for r in asked}, 3, 3, 0.8)
    got = generate(model, asked, drafter=drafter, k=10, batch=3)
    assert {c.id: c.tokens for c in got} == expected


def test_a_chain_of_parents_is_the_chain(verifier: Verifier) -> None:
    ids, lengths = torch.tensor([[5, 6, 7], [8, 9, 1]]), torch.tensor([3, 4])
    ours, theirs = tree(ids, [[-1, 0, 1]] * 2, lengths), chain(ids, lengths)
    assert torch.equal(ours.positions, theirs.positions)
    assert torch.equal(ours.sees, theirs.sees.expand(2, 3, 3))


def prefilled(verifier: Verifier, prompts: list[list[int]]) -> Context:
    """The prompts but for their roots in a cache."""
    cache = verifier.new_cache(len(prompts), 64)
    width = max(map(len, prompts)) - 1
    ids = torch.tensor([[*p[:-1], *[0] * (width - len(p) + 1)] for p in prompts])
    verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger())
    cache.commit([len(p) - 1 for p in prompts])
    return Context(verifier, prompts, cache, Ledger())


@pytest.mark.parametrize("native", [True, False])
def test_t13_the_accepted_path_leaves_the_cache_of_a_fresh_prefill(native: bool) -> None:
    model = tiny_verifier(dtype=torch.float32, hidden=64, native=native)
    prompts = [[5, 9, 11, 2], [7, 1]]
    truth = [plain(model, [Request("a", tuple(p), 6)])["a"] for p in prompts]
    drafts = []
    for t in truth:
        wrong = [(x + 1) % VOCAB for x in t]
        # root -> wrong, t0; t0 -> wrong, t1; t1 -> t2; the wrong ones have children of their own
        drafts.append(
            Draft(
                (wrong[0], t[0], t[1], wrong[1], t[1], t[2], wrong[3]),
                parents=(-1, -1, 0, 1, 1, 4, 5),
            )
        )
    context = prefilled(model, [list(p) for p in prompts])
    verified, hidden = verify(context, drafts)
    for b, (prompt, t, v) in enumerate(zip(prompts, truth, verified, strict=True)):
        assert v.tokens == tuple(t[:4])
        assert v.path == (1, 4, 5)
        committed = [*prompt, *t[:3]]
        assert int(context.cache.lengths[b]) == len(committed)
        fresh = model.new_cache(1, 64)
        rows = chain(torch.tensor([committed]), fresh.lengths)
        out = model.run(Phase.PREFILL, rows, fresh, Ledger())
        size = len(committed)
        torch.testing.assert_close(
            context.cache.keys[:, b, :, :size], fresh.keys[:, 0, :, :size], rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            context.cache.values[:, b, :, :size], fresh.values[:, 0, :, :size], rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(hidden[b, :4], out.hidden[0, -4:], rtol=1e-4, atol=1e-4)


def test_the_free_token_is_the_trees_only_root() -> None:
    draft = Draft((5, 6, 7, 8), free=1, parents=(-1, 0, 0, 2))
    outcome = accept(draft, [7, 0, 8, 3])  # after 5: 7; after 7 (row 2): 8; after 8: 3
    assert outcome.tokens == (5, 7, 8, 3)
    assert outcome.path == (0, 2, 3)
    with pytest.raises(AssertionError):
        Draft((5, 6), free=1, parents=(-1, -1))


def test_best_first_takes_the_largest_products() -> None:
    positions = [[(1, 0.6), (2, 0.4)], [(3, 0.5), (4, 0.3)], [(5, 0.9)]]
    draft = best_first(positions, 5)
    assert draft.parents is not None
    products = []
    for node, share in enumerate(draft.confidences):
        parent = draft.parents[node]
        products.append(share * (1.0 if parent < 0 else products[parent]))
    # every node of the full tree, by its product
    full = [0.6, 0.4, 0.3, 0.18, 0.2, 0.12, 0.27, 0.162, 0.18, 0.108]
    assert products == pytest.approx(sorted(full, reverse=True)[:5])
    assert best_first(positions, 0).tokens == ()
    assert best_first(positions, 99).parents is not None
    assert len(best_first(positions, 99).tokens) == 10


def gated(verifier: Verifier, **plan: object) -> GatedPeftBD:
    """A random gated drafter of the tiny verifier."""
    adapter = RowLoRA(verifier.architecture)  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    adapter = adapter.to(verifier.device, verifier.dtype).requires_grad_(False)
    return GatedPeftBD(adapter, BlockPlan(masks=3, **plan))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [Dice(3), Adaptive(3, CURVE)])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", ["fused", "early-exit"])
def test_t1_plain_steps_between_rounds_that_share_passes(
    verifier: Verifier, kind: str, batch: int, policy: Policy
) -> None:
    block, asked = gated(verifier), requests(8)
    drafter = EarlyExit(2, 1) if kind == "early-exit" else Fused(block.adapter, block.plan)
    ledger = Ledger()
    got = generate(verifier, asked, drafter=drafter, policy=policy, batch=batch, ledger=ledger)
    assert {c.id: c.tokens for c in got} == plain(verifier, asked)
    assert all(p.rows == 1 for p in ledger.passes if p.phase is Phase.PLAIN)


@pytest.mark.parametrize(
    "plan", [{}, {"causal": True}, {"labels": "same", "anchoring": "root_in_block"}]
)
def test_t7_a_tree_of_one_candidate_each_is_the_block_drafters_chain(
    verifier: Verifier, plan: dict[str, object]
) -> None:
    block = gated(verifier, **plan)
    asked = requests(4)
    runs = []
    for drafter in (block, Tree(block, top=1)):
        ledger = Ledger()
        done = list(generate(verifier, asked, drafter=drafter, k=4, batch=3, ledger=ledger))
        runs.append(
            (
                {c.id: c.tokens for c in done},
                [(r.drafted, r.accepted) for r in ledger.rounds],
                [(p.phase, p.rows, p.batch) for p in ledger.passes],
            )
        )
    assert runs[0] == runs[1]


BUILT: dict[str, Callable[[GatedPeftBD], Drafter]] = {
    "top-2": lambda block: Tree(block, top=2),
    "top-4": lambda block: Tree(block, top=4),
}


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("built", BUILT)
def test_t7_trees_of_block_marginals_change_nothing(
    verifier: Verifier, built: str, batch: int, adaptive: bool
) -> None:
    asked, drafter = requests(6), BUILT[built](gated(verifier))
    policy = Adaptive(8, CURVE) if adaptive else None
    got = generate(verifier, asked, drafter=drafter, k=8, policy=policy, batch=batch)
    assert {c.id: c.tokens for c in got} == plain(verifier, asked)
