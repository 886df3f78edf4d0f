"""Static passes (what CUDA graphs hold) are the ordinary passes, in float64, without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.early_exit import EarlyExit
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import IDLE_CACHES, MOST_GRAPHS, GraphVerifier
from breakeven.verifier.interface import LogitRows, Output, Part, Verifier
from breakeven.verifier.lora import LoRASpec, RowLoRA
from breakeven.verifier.rows import BlockShape, Rows, chain, draft_block, tree, with_groups
from breakeven.verifier.static import SHORTEST
from tiny import FAMILIES, tiny_config, tiny_verifier

LAYERS = 3
Pass = tuple[Rows, RowLoRA | None, dict[str, Any]]


def static(eager: LeanVerifier, most: int = MOST_GRAPHS) -> GraphVerifier:
    return GraphVerifier(eager, capture=False, most=most)


def adapter_of(verifier: LeanVerifier, enter: int = 0) -> RowLoRA:
    torch.manual_seed(1)
    layers = tuple(range(enter, verifier.shape.layers)) if enter else None
    spec = LoRASpec(rank=2, layers=layers, late=enter > 0)
    adapter = RowLoRA(verifier.architecture, spec).to(torch.float64)
    for parameter in adapter.parameters():
        parameter.data.normal_(0, 0.3)
    return adapter.requires_grad_(False)


def passes(lengths: torch.Tensor, adapter: RowLoRA, late: RowLoRA, seed: int) -> Iterator[Pass]:
    """One pass of every layout over a cache of these lengths."""
    g = torch.Generator().manual_seed(seed)
    batch = len(lengths)

    def ids(width: int) -> torch.Tensor:
        return torch.randint(64, (batch, width), generator=g)

    shape = BlockShape(3)
    yield chain(ids(1), lengths), None, {}
    yield chain(ids(5), lengths), None, {"taps": (0, 2)}
    yield chain(ids(2), lengths), None, {"part": Part((0, 2))}
    states = torch.randn(batch, 2, 32, generator=g, dtype=torch.float64)
    yield chain(ids(2), lengths), None, {"part": Part((1, 2), states)}
    yield tree(ids(4), [[-1, 0, 0, 2]] * batch, lengths), None, {}
    yield draft_block(ids(1), lengths, shape), adapter, {}
    yield draft_block(ids(1), lengths, replace(shape, causal=True)), adapter, {}
    yield draft_block(ids(1), lengths, shape), late, {"taps": (0, 2)}
    yield draft_block(ids(0), lengths, shape), late, {}
    counts = torch.arange(batch) % 2 + 1
    yield draft_block(ids(2), lengths, shape, counts=counts, gated=False), adapter, {}
    rooted = BlockShape(3, rooted=True)
    block = torch.cat((ids(1), torch.zeros(batch, 3, dtype=torch.long)), dim=1)
    yield draft_block(ids(0), lengths, rooted, block_ids=block), adapter, {}
    yield with_groups(chain(ids(3), lengths), shape, 2), adapter, {}
    yield with_groups(chain(ids(3), lengths), shape, 3), late, {}


def filled(verifier: Verifier, prompts: list[int], seed: int) -> KVCache:
    cache = verifier.new_cache(len(prompts), 64)
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(64, (len(prompts), max(prompts)), generator=g)
    verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger(), logits="none")
    cache.commit(prompts)
    return cache


def close(one: Output, two: Output) -> None:
    assert (one.hidden - two.hidden).abs().max() < 1e-10
    assert one.taps.keys() == two.taps.keys()
    for layer, tap in one.taps.items():
        assert (tap - two.taps[layer]).abs().max() < 1e-10
    if one.logits is not None:
        assert two.logits is not None
        assert (one.logits - two.logits).abs().max() < 1e-10
    if one.choices is not None:
        assert two.choices is not None
        assert torch.equal(one.choices, two.choices)


@pytest.mark.parametrize("prompts", [[7], [3, 11, 6]])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layout_is_the_ordinary_pass_also_through_used_inputs(
    family: str, prompts: list[int]
) -> None:
    eager = tiny_verifier(family, layers=LAYERS)
    fast = static(eager)
    ledger, shapes = Ledger(), []
    ordinary, late = adapter_of(eager), adapter_of(eager, enter=2)
    mine, its = filled(eager, prompts, 0), filled(fast, prompts, 0)
    for turn in range(4):  # other ids and lengths go through the same inputs
        for rows, adapter, options in passes(mine.lengths, ordinary, late, turn):
            logits: LogitRows = "choices" if turn % 2 else "all"
            expected = eager.run(
                Phase.VERIFY, rows, mine, Ledger(), adapter=adapter, logits=logits, **options
            )
            found = fast.run(
                Phase.VERIFY, rows, its, ledger, adapter=adapter, logits=logits, **options
            )
            close(expected, found)
        for cache in (mine, its):  # rows 0.. of the last pass stay
            cache.commit([1 + (turn + b) % 3 for b in range(len(prompts))])
        shapes.append(fast.graphs)
    assert shapes[0] < shapes[1] == shapes[2] == shapes[3]
    assert {p.mode for p in ledger.passes} == {"static"}


def test_outputs_outlive_the_next_pass_of_their_shape() -> None:
    fast = static(tiny_verifier())
    cache = filled(fast, [4], 0)
    first = fast.run(Phase.VERIFY, chain(torch.tensor([[1, 2]]), cache.lengths), cache, Ledger())
    kept = first.hidden.clone()
    fast.run(Phase.VERIFY, chain(torch.tensor([[3, 4]]), cache.lengths), cache, Ledger())
    assert torch.equal(first.hidden, kept)


def test_a_longer_context_reads_a_longer_extent() -> None:
    eager = LeanVerifier.from_config(tiny_config(), dtype=torch.float64)
    fast = static(eager)
    prompt = torch.randint(64, (1, SHORTEST - 1))
    caches = []
    for verifier in (eager, fast):
        cache = verifier.new_cache(1, SHORTEST + 8)
        verifier.run(Phase.PREFILL, chain(prompt, cache.lengths), cache, Ledger(), logits="none")
        cache.commit(SHORTEST - 1)
        caches.append(cache)
    for _ in range(3):  # the second one needs a slot behind the first extent
        rows = chain(torch.tensor([[5]]), caches[0].lengths)
        outs = [
            v.run(Phase.PLAIN, rows, c, Ledger())
            for v, c in zip((eager, fast), caches, strict=True)
        ]
        close(*outs)
        for cache in caches:
            cache.commit(1)
    assert fast.graphs == 2


def test_graphs_are_bounded_and_the_latest_stay() -> None:
    fast = static(tiny_verifier(), most=2)
    cache = filled(fast, [4], 0)
    for width in (1, 2, 3, 1, 2, 3):
        rows = chain(torch.zeros(1, width, dtype=torch.long), cache.lengths)
        fast.run(Phase.VERIFY, rows, cache, Ledger())
    assert fast.graphs == 2


def test_a_cache_nobody_holds_is_used_again_and_few_are_kept() -> None:
    fast = static(tiny_verifier())
    cache = fast.new_cache(2, 40)
    place, window = cache.keys.data_ptr(), cache.window(0, 1)
    del cache
    gc.collect()
    other = fast.new_cache(2, 40)
    assert other.keys.data_ptr() != place  # its window is still held
    del window
    gc.collect()
    assert fast.new_cache(2, 300).keys.data_ptr() == place  # the same extent
    held = [fast.new_cache(1, SHORTEST) for _ in range(IDLE_CACHES + 2)]
    places = {cache.keys.data_ptr() for cache in held}
    held.clear()
    gc.collect()
    again = [fast.new_cache(1, SHORTEST) for _ in range(IDLE_CACHES)]
    assert {cache.keys.data_ptr() for cache in again} < places
    assert all(int(cache.lengths.sum()) == 0 for cache in again)


def test_a_second_run_captures_nothing_new() -> None:
    fast = static(tiny_verifier())
    requests = [Request(f"r{i}", (i + 1, 5, 9), 8) for i in range(3)]
    first = [c.tokens for c in generate(fast, requests)]
    shapes = fast.graphs
    assert [c.tokens for c in generate(fast, requests)] == first
    assert fast.graphs == shapes == 1


def test_states_kept_over_several_passes_of_a_shape_are_right() -> None:
    """Early exit keeps one pass's states while the next of its shape runs."""
    eager = tiny_verifier(layers=4)
    requests = [Request(f"r{i}", (i + 1, 5, 9), 12) for i in range(3)]
    plain = {c.id: c.tokens for c in generate(eager, requests)}
    found = generate(static(eager), requests, drafter=EarlyExit(4, 2), k=3, batch=2)
    assert {c.id: c.tokens for c in found} == plain


def test_prefill_runs_eagerly_and_training_gets_the_eager_decoder() -> None:
    eager = tiny_verifier()
    fast, ledger = static(eager), Ledger()
    list(generate(fast, [Request("a", (1, 2), 3)], ledger=ledger))
    assert {(p.phase, p.mode) for p in ledger.passes} == {
        (Phase.PREFILL, "eager"),
        (Phase.PLAIN, "static"),
    }
    assert type(fast.recast(torch.float32)) is LeanVerifier
