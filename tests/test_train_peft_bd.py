"""PEFT-BD: the training rows are the draft pass, and a block sees nothing it may not see."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row
from breakeven.drafters.base import Context
from breakeven.drafters.ngram import NGram
from breakeven.drafters.peft_bd import GatedBlockDrafter
from breakeven.errors import DrafterError
from breakeven.train.clean import Clean, CleanStream
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain, draft_block
from tiny import FAMILIES, tiny_verifier
from training import objective_of, own_rows, shaken


def trained(verifier: LeanVerifier, rows: list[Row], **settings: object) -> PeftBdObjective:
    objective = shaken(objective_of("peft-bd-gated", verifier, rows, **settings))
    assert isinstance(objective, PeftBdObjective)
    return objective


def clean(verifier: LeanVerifier, row: Row) -> Clean:
    return CleanStream(verifier, with_keys=True).of(row)


@torch.no_grad()
def training_logits(objective: PeftBdObjective, stream: Clean, anchors: list[int]) -> Tensor:
    states = objective.states([stream], torch.tensor([anchors]))[0]
    return objective._verifier.head(states)  # [A, M, V]


def decode_logits(objective: PeftBdObjective, text: list[int], root: int) -> Tensor:
    """The draft pass over a cache that plain decoding wrote: root row and M mask rows."""
    verifier = objective._verifier
    cache = verifier.new_cache(1, len(text) + 8)
    for token in text[:root]:
        verifier.run(Phase.PLAIN, chain(torch.tensor([[token]]), cache.lengths), cache, Ledger())
        cache.commit(1)
    rows = draft_block(
        torch.tensor([text[root]]),
        cache.lengths,
        masks=objective.drafts - 1,
        causal_block=objective.drafter().block.causal,
    )
    out = verifier.run(Phase.DRAFT, rows, cache, Ledger(), adapter=objective.adapter)
    assert out.logits is not None
    return out.logits[0]  # [M + 1, V]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_teacher_forced_logits_are_the_deployed_ones(family: str, causal: bool) -> None:
    """T23 at every position, in float64."""
    verifier = tiny_verifier(family)
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], causal=causal)
    text = [*row.prompt_ids, *row.continuation_ids]
    roots = list(range(len(row.prompt_ids), len(text) - 2))
    taught = training_logits(objective, clean(verifier, row), roots)
    for root, logits in zip(roots, taught, strict=True):
        assert (decode_logits(objective, text, root)[1:] - logits).abs().max() < 1e-10


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


@pytest.mark.parametrize("causal", [True, False])
def test_a_block_sees_no_token_behind_its_anchor(causal: bool) -> None:
    """T23, the leak test: other tokens after the anchor, same logits bit for bit."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], causal=causal)
    anchor = len(row.prompt_ids) + 4
    text = [*row.prompt_ids, *row.continuation_ids]
    changed = text[: anchor + 1] + [(t + 1) % 64 for t in text[anchor + 1 :]]
    cut = len(row.prompt_ids)
    other = Row("changed", "chat", tuple(changed[:cut]), tuple(changed[cut:]), row.finish_reason)
    assert torch.equal(
        training_logits(objective, clean(verifier, row), [anchor]),
        training_logits(objective, clean(verifier, other), [anchor]),
    )


def test_blocks_do_not_see_each_other() -> None:
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row])
    first = len(row.prompt_ids)
    stream = clean(verifier, row)
    together = training_logits(objective, stream, [first, first + 5])
    alone = training_logits(objective, stream, [first + 5])
    assert (together[1] - alone[0]).abs().max() < 1e-12


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
    assert training_logits(objective, clean(verifier, row), [6]).shape[-1] == 64
    assert objective.adapter.mask_vector.shape == (32,)


def test_labels_start_behind_the_free_token_and_end_with_the_text() -> None:
    verifier = tiny_verifier()
    row = Row("a", "chat", (1, 2, 3), (10, 11, 12, 13), own_rows(verifier, 1)[0].finish_reason)
    objective = trained(verifier, [row], masks=3)
    anchors = objective._anchors([row], torch.Generator().manual_seed(0))
    assert anchors.tolist() == [[3, 4]]  # the roots 10 and 11; behind 12 there is nothing to guess
    labels = objective._labels([clean(verifier, row)], anchors)
    assert labels.tolist() == [[[12, 13, -1], [13, -1, -1]]]
    assert objective.labels(Row("b", "chat", (1,), (2, 3), row.finish_reason)) == 0


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
        GatedBlockDrafter.load(tmp_path, Other())  # type: ignore[arg-type]
    assert not isinstance(Other(), Verifier)
