"""FastMTP: sizes, the training layouts, the vocabulary, the start, and the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig

from breakeven.data.artifact import Row
from breakeven.drafters.fastmtp import WEIGHTS_FILE, FastMTP, pruned_head
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.vocabulary import DraftVocabulary
from breakeven.errors import DrafterError
from breakeven.train.clean import CleanStream
from breakeven.train.fastmtp import FastMtpObjective
from breakeven.train.methods import trainable_parameters
from breakeven.train.recipe import FastMtpRecipe, PeftBdRecipe
from breakeven.train.sizes import sizes
from breakeven.verifier.architecture import Architecture
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.rows import chain
from tiny import FAMILIES, tiny_verifier
from training import objective_of, own_rows, shaken

QWEN3 = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def trained(verifier: LeanVerifier, rows: list[Row], **settings: object) -> FastMtpObjective:
    objective = shaken(objective_of("fastmtp", verifier, rows, **settings))
    assert isinstance(objective, FastMtpObjective)
    return objective


def test_the_parameter_counts_are_the_papers() -> None:
    """On the meta device, from Qwen3-0.6B's config."""
    qwen = Architecture.from_config(AutoConfig.for_model("qwen3", **QWEN3))
    counted = sizes(trainable_parameters(FastMtpRecipe(), qwen), qwen)
    assert (counted.trainable, counted.total) == (17_831_168, 613_881_088)
    assert str(counted).endswith("(2.905 %)")
    assert trainable_parameters(PeftBdRecipe(), qwen) == 10_092_544 + 1024  # and the mask vector


@torch.no_grad()
def training_states(objective: FastMtpObjective, row: Row) -> list[Tensor]:
    """``[O, H]`` of each step, and the origins are those of the objective."""
    stream = CleanStream(objective._verifier, with_keys=False).of(row)
    origins = objective._origins([row])
    return [s[0] for s in objective.states(stream.token_ids[None], stream.hidden[None], origins)]


@torch.no_grad()
def decode_states(objective: FastMtpObjective, row: Row, origin: int) -> list[Tensor]:
    """What a round that starts behind ``origin`` computes, one row at a time."""
    verifier, layer = objective._verifier, objective.layer
    text = torch.tensor([*row.prompt_ids, *row.continuation_ids])
    hidden = CleanStream(verifier, with_keys=False).of(row).hidden
    shape = verifier.shape
    cache = KVCache.allocate(
        layers=1,
        batch=1,
        kv_heads=shape.kv_heads,
        capacity=64,
        head_dim=shape.head_dim,
        dtype=verifier.dtype,
    )
    state, states = torch.empty(0), []
    for i in range(origin + objective.drafts):
        if i + 1 >= len(text):
            break
        before = hidden[i] if i <= origin else state
        rows = chain(text[None, i + 1 : i + 2], cache.lengths)
        state = layer(before[None, None], verifier.embed(rows.token_ids), rows, cache)[0, 0]
        cache.commit(1)
        if i >= origin:
            states.append(state)
    return states


@pytest.mark.parametrize("family", FAMILIES)
def test_teacher_forced_states_are_the_deployed_ones(family: str) -> None:
    """T23 at every origin and step, in float64."""
    verifier = tiny_verifier(family)
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row])
    taught = training_states(objective, row)
    for index, origin in enumerate(objective._origins([row])[0].tolist()):
        for step, state in enumerate(decode_states(objective, row, origin)):
            assert (taught[step][index] - state).abs().max() < 1e-10


def test_plain_attention_agrees_with_decoding_at_step_one_only() -> None:
    """As published: the later steps see other keys than decoding gives them."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], attention="plain")
    taught = training_states(objective, row)
    deployed = decode_states(objective, row, len(row.prompt_ids) + 2)
    assert (taught[0][3] - deployed[0]).abs().max() < 1e-10
    assert (taught[1][3] - deployed[1]).abs().max() > 1e-6


@pytest.mark.parametrize("attention", ["cross_step", "plain"])
def test_a_later_token_changes_no_earlier_state(attention: str) -> None:
    """T23, the leak test: step k of origin i may know tokens up to i + k and no further."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = trained(verifier, [row], attention=attention)
    prompt = len(row.prompt_ids)
    at = 6  # the continuation's token that is changed
    tokens = list(row.continuation_ids)
    tokens[at] = (tokens[at] + 1) % 64
    other = Row("changed", "chat", row.prompt_ids, tuple(tokens), row.finish_reason)
    one, two = training_states(objective, row), training_states(objective, other)
    for step, (a, b) in enumerate(zip(one, two, strict=True), start=1):
        origins = torch.arange(len(a)) + prompt - 1
        before = origins + step < prompt + at
        assert torch.allclose(a[before], b[before], atol=1e-12)
        assert not torch.allclose(a[~before][0], b[~before][0], atol=1e-6)


def test_step_k_is_asked_for_the_token_k_plus_one_behind_its_origin() -> None:
    verifier = tiny_verifier()
    row = Row("a", "chat", (1, 2, 3), (10, 11, 12, 13), own_rows(verifier, 1)[0].finish_reason)
    objective = trained(verifier, [row])
    assert objective._origins([row]).tolist() == [[2, 3, 4]]  # roots 10, 11, 12
    score = objective([row], torch.Generator()).score
    assert score.counted.tolist() == [3, 2, 1]


def test_the_head_is_the_verifiers_own() -> None:
    """T20, tied embeddings: the drafter's head is the target's, pruned or not."""
    verifier = tiny_verifier()
    hidden = torch.randn(3, 32, dtype=torch.float64)
    full = verifier.head(hidden)
    assert torch.equal(pruned_head(verifier, None)(hidden), full)
    ids = torch.tensor([3, 9, 40])
    pruned = pruned_head(verifier, DraftVocabulary(ids, 64))(hidden)
    assert torch.allclose(pruned, full[:, ids], atol=1e-12)


@given(st.sets(st.integers(0, 63), min_size=1), st.lists(st.integers(0, 63)))
def test_vocabulary_maps_are_inverse_on_kept_ids(kept: set[int], asked: list[int]) -> None:
    """T21: draft to target and back is the identity; what was dropped is -1."""
    vocabulary = DraftVocabulary(torch.tensor(sorted(kept)), 64)
    drafts = torch.arange(len(kept))
    assert vocabulary.to_draft(vocabulary.to_target(drafts)).tolist() == drafts.tolist()
    for token, draft in zip(asked, vocabulary.to_draft(torch.tensor(asked).long()), strict=True):
        assert (draft >= 0) == (token in kept)
    assert vocabulary.coverage([asked]) == sum(t in kept for t in asked) / max(1, len(asked))


def test_the_vocabulary_is_the_most_frequent_of_the_continuations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    vocabulary = DraftVocabulary.frequent([[5, 5, 7, 7, 7], [2, 5, 9]], 2, 64)
    assert vocabulary.ids.tolist() == [5, 7]
    verifier = tiny_verifier()
    rows = own_rows(verifier, 6)
    objective = trained(verifier, rows[:1], vocabulary=64)
    assert "draft vocabulary: " in capsys.readouterr().err
    objective.prepare(rows[:1], rows, fresh=False)  # of the artifact, not of the rows trained on
    assert objective._vocabulary is not None
    seen = {token for row in rows for token in row.continuation_ids}
    assert set(objective._vocabulary.ids.tolist()) == seen
    for ids in ([], [70], [5, 3], [3, 3]):
        with pytest.raises(DrafterError):
            DraftVocabulary(torch.tensor(ids, dtype=torch.long), 64)


def test_drafts_come_from_the_vocabulary() -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    objective = trained(verifier, rows, vocabulary=5)
    drafter = objective.drafter()
    picked, _ = drafter._pick(torch.randn(50, 32, dtype=torch.float64))
    assert objective._vocabulary is not None
    assert set(picked.tolist()) <= set(objective._vocabulary.ids.tolist())


def test_the_regression_start_predicts_better_than_a_copy() -> None:
    verifier = tiny_verifier(layers=3)
    rows = own_rows(verifier, 24)
    scores = {}
    for start in ("random", "copy", "regression"):
        objective = objective_of("fastmtp", verifier, rows, start=start, start_rows=24)
        with torch.no_grad():
            scores[start] = objective(rows, torch.Generator()).score.survival[0]
    assert scores["regression"] > max(scores["copy"], scores["random"])


def test_moved_requests_keep_their_rows() -> None:
    verifier = tiny_verifier()
    drafter = trained(verifier, own_rows(verifier, 2)).drafter()
    drafter.reserve(2, 16)
    drafter._cache.keys[:, 1, :, :3] = 7.0
    drafter._cache.lengths[1] = 3
    drafter._pending[1] = ([4, 5], torch.ones(2, 32))
    drafter.move(1, 0)
    assert drafter._cache.lengths[0] == 3
    assert bool((drafter._cache.keys[:, 0, :, :3] == 7.0).all())
    assert drafter._pending[0][0] == [4, 5]


@pytest.mark.parametrize("key", ["join.weight", "block.linears.qkv.weight", "vocabulary", "norm"])
def test_a_missing_or_misshapen_tensor_is_named(key: str, tmp_path: Path) -> None:
    """T21."""
    verifier = tiny_verifier()
    trained(verifier, own_rows(verifier, 2), vocabulary=20).save(tmp_path)
    tensors = load_file(tmp_path / WEIGHTS_FILE)
    save_file({k: v for k, v in tensors.items() if k != key}, tmp_path / WEIGHTS_FILE)
    with pytest.raises(DrafterError, match=f"tensor '{key}' is missing"):
        FastMTP.load(tmp_path, verifier)
    save_file({**tensors, key: tensors[key][:-1].clone()}, tmp_path / WEIGHTS_FILE)
    with pytest.raises(DrafterError, match=f"tensor '{key}' has shape"):
        FastMTP.load(tmp_path, verifier)
    (tmp_path / WEIGHTS_FILE).write_bytes(b"broken")
    with pytest.raises(DrafterError, match="cannot be read"):
        FastMTP.load(tmp_path, verifier)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_freezing_changes_no_output(dtype: torch.dtype) -> None:
    """In fp32 the frozen layer may run natively, as a decoder of one layer."""
    verifier = tiny_verifier(dtype=dtype)
    torch.manual_seed(1)
    layer = MTPLayer.of(verifier)
    rows = chain(torch.tensor([[1, 2, 3]]), torch.zeros(1, dtype=torch.long))
    inputs = torch.randn(2, 1, 3, 32, dtype=dtype)

    def run(of: MTPLayer) -> tuple[Tensor, Tensor]:
        cache = KVCache.allocate(layers=1, batch=1, kv_heads=2, capacity=4, head_dim=8, dtype=dtype)
        with torch.no_grad():
            return of(inputs[0], inputs[1], rows, cache), cache.keys

    before, after = run(layer), run(layer.freeze())
    tolerance = 1e-12 if dtype is torch.float64 else 1e-5
    for one, two in zip(before, after, strict=True):
        assert (one - two).abs().max() < tolerance
    assert not any(p.requires_grad for p in layer.parameters())


def test_a_text_with_no_label_in_the_vocabulary_costs_nothing_and_counts_as_wrong() -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 2)
    objective = trained(verifier, rows, vocabulary=1)
    assert objective._vocabulary is not None
    outside = next(t for t in range(64) if t not in objective._vocabulary.ids.tolist())
    row = Row("out", "chat", (1, 2), (outside,) * 6, rows[0].finish_reason)
    judged = objective([row], torch.Generator())
    assert float(judged.loss.detach()) == 0.0
    assert judged.labels > 0
    assert judged.score.accuracy == 0.0
    judged.loss.backward()
