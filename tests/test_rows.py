"""Row layouts, the cache and the gate: what a row sees is what the method says (fp64)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.verifier.cache import KVCache, ReadOnlyPast, visibility
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.lora import LoRASpec, RowLoRA
from breakeven.verifier.rows import BlockShape, Rows, causal, chain, draft_block, noised_blocks
from tiny import FAMILIES, tiny_verifier

VOCAB, MASKS = 64, 4


def adapter_of(verifier: LeanVerifier, seed: int = 0) -> RowLoRA:
    """A random adapter whose every part matters."""
    generator = torch.Generator().manual_seed(seed)
    lora = RowLoRA(verifier.architecture, LoRASpec(rank=4, alpha=8.0)).double()
    for p in lora.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.3
    return lora.requires_grad_(False)


def cached(verifier: LeanVerifier, ids: torch.Tensor, capacity: int = 64) -> KVCache:
    cache = verifier.new_cache(len(ids), capacity)
    if ids.shape[1]:
        rows = chain(ids, cache.lengths)
        verifier.run(Phase.PREFILL, rows, cache, Ledger(), logits="none")
        cache.commit(ids.shape[1])
    return cache


def ids_of(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("causal_block", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_t23_training_blocks_equal_draft_passes(family: str, causal_block: bool) -> None:
    verifier, ids = tiny_verifier(family), ids_of(2, 20)
    lora = adapter_of(verifier)
    anchors = torch.tensor([[3, 9, 14], [0, 7, 19]])
    clean = cached(verifier, ids)
    rows = noised_blocks(anchors, BlockShape(MASKS, causal=causal_block))
    trained = verifier.head(verifier.body(rows, ReadOnlyPast(clean), lora).hidden)
    for request in range(2):
        for block, anchor in enumerate(anchors[request].tolist()):
            cache = cached(verifier, ids[request : request + 1, :anchor])
            root = ids[request, anchor : anchor + 1]
            layout = draft_block(
                root[:, None], cache.lengths, BlockShape(MASKS, causal=causal_block)
            )
            out = verifier.run(Phase.DRAFT, layout, cache, Ledger(), adapter=lora)
            assert out.logits is not None
            expected = trained[request, block * MASKS : (block + 1) * MASKS]
            torch.testing.assert_close(out.logits[0, 1:], expected)


def test_the_gated_root_row_is_the_verifiers_bit_for_bit() -> None:
    verifier, ids = tiny_verifier(), ids_of(1, 10)
    lora = adapter_of(verifier)
    layout = draft_block(ids[:, 9:10], torch.tensor([9]), BlockShape(MASKS))
    drafted, bare = cached(verifier, ids[:, :9]), cached(verifier, ids[:, :9])
    with_adapter = verifier.run(Phase.DRAFT, layout, drafted, Ledger(), adapter=lora)
    untouched = RowLoRA(verifier.architecture, LoRASpec(rank=4)).double()  # B = 0: no delta
    untouched.mask_vector.data = lora.mask_vector.data
    without = verifier.run(Phase.DRAFT, layout, bare, Ledger(), adapter=untouched)
    assert with_adapter.logits is not None
    assert without.logits is not None
    assert torch.equal(with_adapter.logits[:, 0], without.logits[:, 0])
    assert torch.equal(drafted.keys[..., :10, :], bare.keys[..., :10, :])
    assert not torch.equal(with_adapter.logits[:, 1:], without.logits[:, 1:])


def test_the_free_token_is_the_plain_step() -> None:
    verifier, ids = tiny_verifier(), ids_of(1, 10)
    cache = cached(verifier, ids[:, :9])
    plain = verifier.run(Phase.PLAIN, chain(ids[:, 9:], cache.lengths), cache, Ledger())
    layout = draft_block(ids[:, 9:10], cache.lengths, BlockShape(MASKS))
    drafted = verifier.run(Phase.DRAFT, layout, cache, Ledger(), adapter=adapter_of(verifier))
    assert plain.logits is not None
    assert drafted.logits is not None
    torch.testing.assert_close(plain.logits[:, 0], drafted.logits[:, 0])


def test_t27_an_adapter_with_no_gated_row_changes_no_bit() -> None:
    verifier, ids = tiny_verifier(), ids_of(2, 12)
    cache = verifier.new_cache(2, 12)
    rows = chain(ids, cache.lengths)
    off = Rows(rows.token_ids, rows.positions, rows.sees, gate=torch.zeros(12, dtype=torch.bool))
    bare = verifier.run(Phase.PLAIN, rows, cache, Ledger()).logits
    gated = verifier.run(Phase.PLAIN, off, cache, Ledger(), adapter=adapter_of(verifier)).logits
    assert bare is not None
    assert gated is not None
    assert torch.equal(bare, gated)


def test_a_later_token_changes_no_earlier_logit() -> None:
    verifier, ids = tiny_verifier(), ids_of(1, 20)
    lora, anchors = adapter_of(verifier), torch.tensor([[5]])
    changed = ids.clone()
    changed[0, 6:] = (changed[0, 6:] + 1) % VOCAB
    before, after = (
        verifier.body(
            noised_blocks(anchors, BlockShape(MASKS)), ReadOnlyPast(cached(verifier, x)), lora
        ).hidden
        for x in (ids, changed)
    )
    assert torch.equal(before, after)


def test_blocks_do_not_see_each_other() -> None:
    verifier, ids = tiny_verifier(), ids_of(1, 20)
    lora, past = adapter_of(verifier), ReadOnlyPast(cached(verifier, ids))
    both = verifier.body(
        noised_blocks(torch.tensor([[3, 12]]), BlockShape(MASKS)), past, lora
    ).hidden
    one = verifier.body(noised_blocks(torch.tensor([[12]]), BlockShape(MASKS)), past, lora).hidden
    torch.testing.assert_close(both[:, MASKS:], one)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    width=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_visibility_is_the_slow_obvious_loop(lengths: list[int], width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sees = (torch.rand(width, width, generator=generator) < 0.5) | torch.eye(width).bool()
    held = torch.tensor(lengths)
    rows = Rows(torch.zeros(len(lengths), width).long(), torch.zeros(len(lengths), width), sees)
    slots = held[:, None] + torch.arange(width)
    got = visibility(rows, held, slots, int(held.max()) + width)
    for b, length in enumerate(lengths):
        for i in range(width):
            for slot in range(got.shape[2]):
                own = length <= slot < length + width
                expected = slot < length or (own and bool(sees[i, slot - length]))
                assert bool(got[b, i, slot]) is expected


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(0, 4), min_size=2, max_size=2)),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 1000),
)
def test_any_history_of_passes_and_commits_leaves_a_fresh_prefills_cache(
    steps: list[tuple[int, list[int]]], seed: int
) -> None:
    verifier, ids = tiny_verifier(layers=1), ids_of(2, 64, seed=seed)
    cache, ledger = verifier.new_cache(2, 64), Ledger()
    for width, keep in steps:
        at = cache.lengths[:, None] + torch.arange(width)
        noise = (ids.gather(1, at) + (torch.arange(width) >= min(keep))) % VOCAB  # wrong tails
        verifier.run(Phase.VERIFY, chain(noise, cache.lengths), cache, ledger, logits="none")
        cache.commit([min(width, min(keep))] * 2)
    size = int(cache.lengths[0])
    fresh = cached(verifier, ids[:, :size])
    assert torch.allclose(cache.keys[..., :size, :], fresh.keys[..., :size, :], atol=1e-10)


def test_windows_share_and_moves_copy() -> None:
    verifier = tiny_verifier()
    cache = verifier.new_cache(3, 16)
    for request, size in enumerate((2, 3, 5)):
        window = cache.window(request, request + 1)
        rows = chain(ids_of(1, size, seed=request), window.lengths)
        verifier.run(Phase.PREFILL, rows, window, Ledger(), logits="none")
        window.commit(size)
    assert cache.lengths.tolist() == [2, 3, 5]
    cache.move(2, 0)
    assert cache.lengths.tolist() == [5, 3, 5]
    assert torch.equal(cache.keys[:, 0, :, :5], cache.keys[:, 2, :, :5])
    cache.crop(0, 1)
    assert cache.lengths.tolist() == [1, 3, 5]
    assert cache.nbytes == 2 * cache.keys.numel() * 8


def test_a_chain_is_causal() -> None:
    rows = chain(ids_of(2, 3), torch.tensor([4, 7]))
    assert torch.equal(rows.sees, causal(3))
    assert rows.positions.tolist() == [[4, 5, 6], [7, 8, 9]]
