"""Drafters by name, and drafters that do not fit: said before anything is decoded (T17)."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fastmtp import FastMTP
from breakeven.drafters.layer_skip import LayerSkip
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.options import GIVEN
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import METHODS, check, create, names
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


@pytest.mark.parametrize("name", METHODS)
def test_every_option_of_a_drafter_is_in_the_docs(name: str) -> None:
    page = (Path(__file__).parents[1] / "docs" / "drafters.md").read_text("utf-8")
    [_, table] = page.split("| drafter | option |")
    lines = [line for line in table.splitlines() if f"`{name}`" in line.split(" | ")[0]]
    kind, trained = check(name)
    taken = inspect.signature(kind.load if trained else getattr(kind, "of", kind)).parameters
    own = [n for n, p in taken.items() if n not in GIVEN and p.kind is not p.VAR_KEYWORD]
    assert all(any(f"`{option}`" in line for line in lines) for option in own)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("tree", {"top": "many"}, "'tree': option top = many: give a whole number"),
        ("fastmtp", {"weights": "exakt"}, "weights = exakt: give 'int8' or 'exact'"),
        ("layer-skip", {"skip": 3}, "skip = 3: give a list of whole numbers"),
        ("peft-bd-fused", {"groups": 2.5}, "groups = 2.5: give a whole number or 'auto'"),
        ("suffix", {"factor": True}, "factor = True: give a number"),
        ("suffix", {"factor": [1]}, "give a number"),
        ("quantized", {"bits": 4}, "'quantized' has no option 'bits'; it takes none"),
    ],
)
def test_an_option_of_another_type(name: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(DrafterError, match=re.escape(says)):
        check(name, None, options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ngram", {"shortest": 3, "longest": 2}),
        ("suffix", {"factor": math.inf}),
        ("suffix", {"factor": math.nan}),
        ("suffix", {"least": math.nan}),
        ("suffix", {"shared_states": 0}),
    ],
)
def test_an_option_out_of_range(name: str, options: dict[str, float]) -> None:
    with pytest.raises(DrafterError, match=f"^{name}: .* give "):
        create(name, loaded(), **options)


def test_layers_of_ones_own_choice(tmp_path: Path) -> None:
    LayerSkip(2, [0], IDENTITY).save(tmp_path / "skip")
    EarlyExit(2, 1, IDENTITY).save(tmp_path / "exit")
    made = create("layer-skip", loaded(), tmp_path / "skip", skip=[1])
    assert isinstance(made, LayerSkip)
    assert made.skip == (1,)
    with pytest.raises(DrafterError, match="give some of the layers 0 to 1"):
        create("layer-skip", loaded(), tmp_path / "skip", skip=[0, 1])
    with pytest.raises(DrafterError, match="exit 2: give 1 to 1 layers"):
        create("early-exit", loaded(), tmp_path / "exit", exit=2)
