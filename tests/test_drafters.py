"""Drafters by name, and drafters that do not fit: said before anything is decoded (T17)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.fastmtp import FastMTP
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import create, names
from breakeven.drafters.vocabulary import DraftVocabulary
from breakeven.errors import DrafterError
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.load import Loaded
from breakeven.verifier.lora import RowLoRA
from tiny import tiny_verifier

IDENTITY = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)


def loaded(vocab: int = 64) -> Loaded:
    verifier = tiny_verifier(vocab=vocab, dtype=torch.float32)
    return Loaded(verifier, None, IDENTITY, frozenset(), Path("tiny"))


def lean(vocab: int = 64) -> LeanVerifier:
    verifier = loaded(vocab).verifier
    assert isinstance(verifier, LeanVerifier)
    return verifier


def saved_mtp(folder: Path, verifier: LeanVerifier, ids: list[int]) -> None:
    vocabulary = DraftVocabulary(torch.tensor(ids), verifier.shape.vocab_size)
    FastMTP(MTPLayer.of(verifier).freeze(), vocabulary, verifier, IDENTITY).save(folder)


def test_every_method_is_listed_and_untrained_ones_are_made() -> None:
    assert {"ngram", "peft-bd-gated", "fastmtp"} <= set(names())
    assert create("ngram", loaded(), longest=2).name == "ngram"


@pytest.mark.parametrize(
    ("name", "path", "says"),
    [
        ("n-gram", None, "did you mean 'ngram'"),
        ("ngram", "runs/x", "has no weights"),
        ("fastmtp", None, "give its folder: fastmtp=FOLDER"),
        ("fastmtp", "runs/nowhere", "no folder 'runs/nowhere'"),
    ],
)
def test_a_name_that_does_not_lead_to_a_drafter(name: str, path: str | None, says: str) -> None:
    with pytest.raises(DrafterError, match=says):
        create(name, loaded(), path)


def test_t17_a_draft_vocabulary_beyond_the_verifiers_names_both_sizes(tmp_path: Path) -> None:
    saved_mtp(tmp_path, lean(80), [3, 70])
    with pytest.raises(DrafterError, match=r"from 0 to 63; this one has 2 ids up to 70"):
        create("fastmtp", loaded(64), tmp_path)


def test_t17_a_block_drafter_without_its_mask_is_refused_by_name(tmp_path: Path) -> None:
    adapter = RowLoRA(lean().architecture)
    GatedPeftBD(adapter, BlockPlan(), IDENTITY).save(tmp_path)
    mask = tmp_path / "mask_vector.safetensors"
    save_file({"something_else": load_file(mask)["mask_vector"]}, mask)
    with pytest.raises(DrafterError, match="tensor 'mask_vector' is missing"):
        create("peft-bd-gated", loaded(), tmp_path)
    mask.unlink()
    with pytest.raises(DrafterError, match=r"no mask_vector\.safetensors"):
        create("peft-bd-gated", loaded(), tmp_path)
