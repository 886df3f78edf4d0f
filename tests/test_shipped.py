"""Drafters that ship: found for their verifier, complete, small, and what their papers say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from breakeven.drafters.card import Card
from breakeven.drafters.registry import METHODS, create
from breakeven.drafters.shipped import ASSETS, shipped_folder
from breakeven.train.methods import load_train_recipe
from breakeven.train.provenance import read_provenance
from breakeven.verifier.identity import Identity
from tiny_chat import tiny_loaded

FOLDERS = sorted(ASSETS.glob("*/drafters/*"))
OURS = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)


def test_a_drafter_is_found_by_the_weights_it_was_trained_for(tmp_path: Path) -> None:
    folder = tmp_path / "tiny" / "drafters" / "fastmtp"
    folder.mkdir(parents=True)
    Card("fastmtp", OURS, {}).write(folder)
    assert shipped_folder("fastmtp", OURS, tmp_path) == folder
    assert shipped_folder("fastmtp", replace(OURS, name="./copy"), tmp_path) == folder
    assert shipped_folder("fastmtp", replace(OURS, weights_sha256="d" * 64), tmp_path) is None
    assert shipped_folder("peft-bd-gated", OURS, tmp_path) is None


def test_a_trained_drafter_without_a_folder_is_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training import objective_of, own_rows

    loaded = tiny_loaded()
    objective = objective_of("fastmtp", loaded.verifier, own_rows(loaded.verifier, 2))  # type: ignore
    objective._identity = loaded.identity  # type: ignore[assignment]
    objective.save(tmp_path)
    monkeypatch.setattr(
        "breakeven.drafters.registry.shipped_folder", lambda name, identity: tmp_path
    )
    assert create("fastmtp", loaded).name == "fastmtp"


@pytest.mark.parametrize("name", ["tree", "peft-bd-fused", "peft-bd-quantized"])
def test_a_method_that_borrows_an_adapter_takes_the_shipped_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from breakeven.drafters.peft_bd import GatedPeftBD

    loaded = tiny_loaded()
    gated = GatedPeftBD.untrained(loaded.verifier, 3)
    gated.verifier = loaded.identity
    gated.save(tmp_path)
    asked: list[str] = []

    def shipped(name: str, identity: Identity) -> Path:
        asked.append(name)
        return tmp_path

    monkeypatch.setattr("breakeven.drafters.registry.shipped_folder", shipped)
    assert create(name, loaded).name == name
    assert asked == ["peft-bd-gated"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["peft-bd", "peft-bd-gated", "fastmtp"])
def test_weights_are_saved_in_the_type_asked_for(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    from tiny import tiny_verifier
    from training import fit, objective_of, own_rows

    verifier = tiny_verifier(dtype=torch.float32)
    rows = own_rows(verifier, 2)
    objective = objective_of(name, verifier, rows)
    fit(objective, rows, 3)
    objective.save(tmp_path, dtype)
    for file in tmp_path.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            found = {tensors.get_tensor(key).dtype for key in tensors.keys()}  # noqa: SIM118
        assert {d for d in found if d.is_floating_point} == {dtype}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_a_shipped_drafter_has_its_papers(folder: Path) -> None:
    papers = read_provenance(folder)
    card = Card.read(folder, folder.name, None)
    assert card.drafter == papers["drafter"] == folder.name
    assert folder.name in METHODS
    recipe = load_train_recipe(folder / "recipe.yaml")
    assert recipe.model_dump(mode="json") == papers["recipe"]
    profile = json.loads((folder / "speculation_profile.json").read_text())
    assert profile["method"] == folder.name
    assert profile["measurement_conditions"]["num_samples"] >= 200
    assert profile["mean_accept_length"] > 1.4
    assert papers["acceptance"]["acceptance_length"] == pytest.approx(
        profile["mean_accept_length"], abs=0.35
    )


def test_shipped_drafters_stay_small() -> None:
    size = sum(f.stat().st_size for folder in FOLDERS for f in folder.rglob("*") if f.is_file())
    assert size <= 25e6
