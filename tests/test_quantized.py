"""Drafting with the verifier's own weights, rounded to int8."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.fastmtp import FastMTP
from breakeven.drafters.hybrid import Hybrid
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.quantized import Quantized, QuantizedPeftBD
from breakeven.drafters.registry import create
from breakeven.drafters.vocabulary import DraftVocabulary
from breakeven.errors import DrafterError
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Part
from breakeven.verifier.native import library
from breakeven.verifier.rows import chain
from tiny import FAMILIES, tiny_config, tiny_verifier
from tiny_chat import tiny_loaded
from training import own_rows

Kind = tuple[torch.dtype, bool]
KINDS: list[Kind] = [(torch.float32, True), (torch.float32, False), (torch.float64, False)]
"""Native, PyTorch, and PyTorch in another type."""


def verifier_of(kind: Kind, family: str = "llama") -> LeanVerifier:
    dtype, native = kind
    return LeanVerifier.from_config(tiny_config(family), dtype=dtype, native=native)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_twin_is_the_verifier_with_nearly_its_weights(family: str, kind: Kind) -> None:
    verifier = verifier_of(kind, family)
    twin = verifier.rounded()
    assert twin.name == f"{verifier.name}+int8"
    for theirs, ours in zip(twin.blocks, verifier.blocks, strict=True):
        for group, linear in ours.linears.items():
            rounded, exact = theirs.linears[group].weight, linear.weight
            assert rounded.dtype is exact.dtype
            assert 0 < (rounded - exact).abs().max() <= exact.abs().max() / 254 * 1.001
    text = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    hidden = [
        v.body(chain(text, cache.lengths), cache).hidden
        for v in (verifier, twin)
        for cache in [v.new_cache(1, 16)]
    ]
    assert not torch.equal(*hidden)
    torch.testing.assert_close(*hidden, rtol=0.1, atol=0.1)


@torch.inference_mode()
def test_the_native_twin_computes_what_its_weights_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "draft_kind", lambda: library.INT8)  # W8A8: test_w8a8.py
    native, reference = (verifier_of(kind).rounded() for kind in KINDS[:2])
    text = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    ours, theirs = (
        v.body(chain(text, cache.lengths), cache).hidden
        for v in (native, reference)
        for cache in [v.new_cache(1, 16)]
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_drafters_of_a_verifier_share_one_rounded_copy() -> None:
    verifier = verifier_of(KINDS[0])
    first, second = Quantized.of(verifier), QuantizedPeftBD.untrained(verifier, 4)
    assert first.twin is second.twin
    assert Quantized.of(verifier_of(KINDS[0])).twin is not first.twin
    assert Quantized.of(verifier.recast(torch.float32)).twin is not first.twin


def drafters(verifier: LeanVerifier) -> dict[str, Drafter]:
    return {
        "quantized": Quantized.of(verifier),
        "peft-bd-quantized": QuantizedPeftBD.untrained(verifier, 4),
        "hybrid": Hybrid.of(verifier),
    }


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["quantized", "peft-bd-quantized", "hybrid"])
def test_the_output_is_the_verifiers_own(name: str, kind: Kind, batch: int) -> None:
    verifier = verifier_of(kind)
    rows = own_rows(verifier, 4)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    drafter, ledger = drafters(verifier)[name], Ledger()
    answers = generate(verifier, requests, drafter=drafter, k=3, batch=batch, ledger=ledger)
    assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
    assert all(r.free == 0 for r in ledger.rounds)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_weights_that_int8_holds_exactly_are_never_rejected(kind: Kind) -> None:
    verifier = verifier_of(kind).rounded()
    with pytest.raises(DrafterError, match="int8 already"):
        Quantized.of(verifier)
    verifier.name = "whole numbers"
    rows = own_rows(verifier, 3)
    ledger = Ledger()
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    list(generate(verifier, requests, drafter=Quantized.of(verifier), k=3, ledger=ledger))
    assert all(r.accepted == r.drafted for r in ledger.rounds)
    assert sum(r.drafted for r in ledger.rounds) > 20


@pytest.mark.parametrize("name", ["quantized", "peft-bd-quantized"])
def test_what_the_twin_writes_is_scratch(name: str) -> None:
    verifier = verifier_of(KINDS[0])
    cache, tokens = verifier.new_cache(1, 32), [3, 1, 4, 1, 5]
    verifier.body(chain(torch.tensor([tokens[:-1]]), cache.lengths), cache)
    cache.commit(4)
    keys = cache.keys[:, :, :, :4].clone()
    context = Context(verifier=verifier, tokens=[tokens], cache=cache, ledger=Ledger())
    [draft] = drafters(verifier)[name].propose(context, 3)
    assert len(draft.tokens) == 3
    assert draft.free == 0
    assert cache.lengths.tolist() == [4]
    assert torch.equal(cache.keys[:, :, :, :4], keys)


def test_the_block_is_drafted_by_the_rounded_layers(tmp_path: Path) -> None:
    loaded = tiny_loaded()
    verifier = loaded.verifier
    assert isinstance(verifier, LeanVerifier)
    gated = GatedPeftBD.untrained(verifier, 4)
    gated.save(tmp_path / "gated")
    made = create("peft-bd-quantized", loaded, tmp_path / "gated", steps=2)
    assert isinstance(made, QuantizedPeftBD)
    assert (made.free, made.longest, made.steps) == (0, 4, 2)
    assert made.twin.name.endswith("+int8")
    with pytest.raises(DrafterError, match="option 'groups' is unknown"):
        create("peft-bd-quantized", loaded, tmp_path / "gated", groups=2)


def test_a_hybrid_without_a_folder_is_of_the_rounded_weights() -> None:
    loaded = tiny_loaded()
    made = create("hybrid", loaded)
    assert isinstance(made, Hybrid)
    assert isinstance(made.inner, Quantized)
    with pytest.raises(DrafterError, match="'quantized' has no option 'twin'"):
        create("quantized", loaded, twin=None)


def test_parts_of_the_twin_are_its_own() -> None:
    verifier = tiny_verifier(layers=4)
    twin = verifier.rounded()
    cache = twin.new_cache(1, 8)
    rows = chain(torch.tensor([[3, 1, 4]]), cache.lengths)
    part = twin.body(rows, cache, part=Part((0, 2))).hidden
    assert not torch.equal(part, verifier.body(rows, cache, part=Part((0, 2))).hidden)


def test_fastmtp_is_rounded_unless_it_is_to_be_exact(tmp_path: Path) -> None:
    loaded = tiny_loaded()
    verifier = loaded.verifier
    assert isinstance(verifier, LeanVerifier)
    vocabulary = DraftVocabulary(torch.arange(0, 264, 2), 264)
    made = MTPLayer.of(verifier)
    FastMTP(made.freeze(), vocabulary, verifier, loaded.identity).save(tmp_path)
    whole = made.join.weight
    exact, rounded = (
        FastMTP.load(tmp_path, verifier, loaded.identity, w) for w in ("exact", "int8")
    )
    assert torch.equal(exact.layer.join.weight, whole)
    step = whole.abs().max() / 254 * 1.001
    assert 0 < (rounded.layer.join.weight - whole).abs().max() <= step
    rows = own_rows(verifier, 3)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    for drafter in (exact, rounded):
        answers = generate(verifier, requests, drafter=drafter, k=3)
        assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
    with pytest.raises(DrafterError, match="weights = int4: give 'int8' or 'exact'"):
        create("fastmtp", loaded, tmp_path, weights="int4")
