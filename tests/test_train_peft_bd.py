"""PEFT-BD: the training rows are the draft pass, and a block sees nothing it may not see."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Context
from breakeven.drafters.denoise import Canvas
from breakeven.drafters.ngram import NGram
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.errors import DrafterError
from breakeven.train.blocks import Blocks, cut
from breakeven.train.clean import Clean, CleanStream
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.verifier.cache import NoPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain, noised_blocks, two_streams
from tiny import FAMILIES, tiny_verifier
from training import VARIANTS, fit, objective_of, own_rows, shaken


def trained(
    verifier: LeanVerifier, rows: list[Row], name: str = "peft-bd-gated", **settings: object
) -> PeftBdObjective:
    objective = shaken(objective_of(name, verifier, rows, **settings))
    assert isinstance(objective, PeftBdObjective)
    return objective.eval()


def clean(verifier: LeanVerifier, row: Row) -> Clean:
    return CleanStream(verifier, with_keys=True).of(row)


def blocks_at(objective: PeftBdObjective, row: Row, anchors: list[int]) -> tuple[Tensor, Blocks]:
    texts = torch.tensor([[*row.prompt_ids, *row.continuation_ids]])
    roots = torch.tensor([anchors])
    hidden = torch.ones(*roots.shape, objective.plan.masks, dtype=torch.bool)
    return texts, cut(objective.plan, texts, torch.tensor([texts.shape[1]]), roots, hidden)


@torch.no_grad()
def training_logits(objective: PeftBdObjective, row: Row, anchors: list[int]) -> Tensor:
    """``[A, G, V]`` of the guesses behind each anchor, teacher-forced."""
    texts, blocks = blocks_at(objective, row, anchors)
    states = objective.states(texts, blocks, [clean(objective._verifier, row)])[0]
    return objective._verifier.head(states)


def decode_logits(objective: PeftBdObjective, text: list[int], root: int) -> Tensor:
    """``[most, V]`` by which the deployed drafter chooses its drafts behind ``root``."""
    verifier = objective._verifier
    drafter = objective.drafter()
    drafter.reserve(1, len(text) + 8)
    cache = verifier.new_cache(1, len(text) + 8)
    context = Context(verifier, [[]], cache, Ledger())
    for index, token in enumerate(text[:root]):  # as plain decoding would have written it
        layout = chain(torch.tensor([[token]]), cache.lengths)
        verifier.run(Phase.PLAIN, layout, cache, Ledger())
        cache.commit(1)
        context.tokens[0].append(token)
        if index == 1:
            drafter.begin(context, 0, None)
    context.tokens[0].append(text[root])
    kept: list[Tensor] = []
    choose = verifier.choose
    verifier.choose = lambda h: (kept.append(verifier.head(h)), choose(h))[1]  # type: ignore
    try:
        drafter.propose(context, objective.drafts)
    finally:
        del verifier.choose  # type: ignore[method-assign]
    rows = kept[0].shape[1]
    canvas = Canvas(drafter.plan, drafter.plan.shape, torch.tensor([0]), steps=1, refill="masked")
    prefix = rows - drafter.plan.shape.width
    index = canvas.sources(torch.tensor([prefix]), prefix)[0]
    return kept[0][0, index]


BLOCK_VARIANTS = [name for name in VARIANTS if name not in ("peft-bd-fused", "fastmtp")]


@pytest.mark.parametrize("name", BLOCK_VARIANTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_teacher_forced_logits_are_the_deployed_ones(family: str, name: str) -> None:
    """T23 at every position, in float64: V1 over its own cache, V2 over the verifier's."""
    verifier = tiny_verifier(family)
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], name)
    text = [*row.prompt_ids, *row.continuation_ids]
    roots = list(range(len(row.prompt_ids), len(text) - 2))
    taught = training_logits(objective, row, roots)
    free = objective.plan.free
    for root, logits in zip(roots, taught, strict=True):
        deployed = decode_logits(objective, text, root)
        assert (deployed[free:] - logits).abs().max() < 1e-10


def test_an_adapter_of_every_row_is_not_at_home_in_the_verifiers_cache() -> None:
    """V3, the mismatch: other logits, the same output."""
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    objective = trained(verifier, rows, "peft-bd")
    fit(objective, rows, 40)
    mismatched = PeftBD(objective.adapter, objective.plan, cache="shared")
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    own, shared = (
        list(generate(verifier, requests, drafter=drafter, k=3, batch=2))
        for drafter in (objective.drafter(), mismatched)
    )
    assert {a.id: a.tokens for a in own} == {a.id: a.tokens for a in shared}
    assert {r.id: list(r.continuation_ids) for r in rows} == {a.id: a.tokens for a in shared}
    assert [a.rounds for a in own] != [a.rounds for a in shared]


def test_requests_that_went_on_without_drafts_are_caught_up_with() -> None:
    """A long stretch of plain steps, then a draft: the own cache reads what it has missed."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1, new_tokens=40)[0]
    objective = trained(verifier, [row], "peft-bd")
    text = [*row.prompt_ids, *row.continuation_ids]
    late = decode_logits(objective, text, len(text) - 4)  # begun at two tokens
    taught = training_logits(objective, row, [len(text) - 4])[0]
    assert (late - taught).abs().max() < 1e-10


def test_the_free_token_is_the_verifiers_own_and_masks_do_not_touch_it() -> None:
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row])
    text = [*row.prompt_ids, *row.continuation_ids]
    root = len(row.prompt_ids) + 3
    cache = verifier.new_cache(1, len(text))
    plain = verifier.run(
        Phase.PREFILL, chain(torch.tensor([text]), cache.lengths), cache, Ledger()
    ).logits
    assert plain is not None
    assert (decode_logits(objective, text, root)[0] - plain[0, root]).abs().max() < 1e-10


@pytest.mark.parametrize("name", BLOCK_VARIANTS)
def test_a_block_sees_no_token_behind_its_anchor(name: str) -> None:
    """T23, the leak test: other tokens after the anchor, same logits bit for bit."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], name)
    anchor = len(row.prompt_ids) + 4
    text = [*row.prompt_ids, *row.continuation_ids]
    changed = text[: anchor + 1] + [(t + 1) % 64 for t in text[anchor + 1 :]]
    start = len(row.prompt_ids)
    other = replace(row, id="changed", continuation_ids=tuple(changed[start:]))
    assert torch.equal(
        training_logits(objective, row, [anchor]), training_logits(objective, other, [anchor])
    )


@pytest.mark.parametrize("name", BLOCK_VARIANTS)
def test_blocks_do_not_see_each_other(name: str) -> None:
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], name)
    first = len(row.prompt_ids)
    together = training_logits(objective, row, [first, first + 5])
    alone = training_logits(objective, row, [first + 5])
    assert (together[1] - alone[0]).abs().max() < 1e-12


def test_a_gated_block_over_remembered_keys_is_the_two_stream_pass() -> None:
    """The shortcut of training (no gradient, keys reused) against both streams in one pass."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row])
    texts, blocks = blocks_at(objective, row, [5, 9])
    layout = noised_blocks(blocks.anchors, objective.plan.shape)
    both = two_streams(texts, layout, gated=True)
    hidden = verifier.body(both, NoPast(), objective.adapter).hidden
    states = objective.states(texts, blocks, [clean(verifier, row)])
    expected = hidden[:, texts.shape[1] :].view_as(states)
    assert (states - expected).abs().max() < 1e-12
    untouched = clean(verifier, row).hidden
    assert (hidden[0, : texts.shape[1]] - untouched).abs().max() < 1e-12


@pytest.mark.parametrize("causal", [True, False])
def test_a_block_drafts_the_same_tokens_for_any_k(causal: bool) -> None:
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    drafter = trained(verifier, [row], masks=4, causal=causal).drafter()
    text = [*row.prompt_ids, *row.continuation_ids][:12]
    cache = verifier.new_cache(1, 24)
    verifier.run(Phase.PREFILL, chain(torch.tensor([text[:-1]]), cache.lengths), cache, Ledger())
    cache.commit(len(text) - 1)
    context = Context(verifier, [text], cache, Ledger())
    drafts = [drafter.propose(context, k)[0] for k in range(1, 8)]
    assert [len(d.tokens) for d in drafts] == [1, 2, 3, 4, 5, 5, 5]  # masks + 1 at most
    assert all(d.tokens == drafts[-1].tokens[: len(d.tokens)] and d.free == 1 for d in drafts)
    rows = [p.rows for p in context.ledger.passes]
    assert rows == ([1, 2, 3, 4, 5, 5, 5] if causal else [5] * 7)


def test_the_mask_is_no_token() -> None:
    """The head keeps V rows: there is no mask id to emit."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row])
    assert training_logits(objective, row, [6]).shape[-1] == 64
    assert objective.adapter.mask_vector.shape == (32,)


def test_the_stored_clean_stream_is_bounded_and_repeats_itself() -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    size = clean(verifier, rows[0]).nbytes
    stream = CleanStream(verifier, with_keys=True, budget_bytes=int(1.5 * size))
    first = [stream.of(row) for row in rows]
    again = [stream.of(row) for row in rows]
    assert first[0] is again[0]
    assert first[2] is not again[2]
    for one, two in zip(first, again, strict=True):
        assert one.keys is not None
        assert two.keys is not None
        assert torch.equal(one.keys, two.keys)


def test_a_verifier_that_cannot_be_adapted_is_refused(tmp_path: object) -> None:
    class Other(NGram):
        name = "some-model"

    with pytest.raises(DrafterError, match="needs the lean decoder"):
        GatedPeftBD.load(tmp_path, Other())  # type: ignore[arg-type]
    assert not isinstance(Other(), Verifier)
