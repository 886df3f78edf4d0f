"""Row-gated LoRA is PEFT's LoRA on the gated rows; its folder is a PEFT adapter folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.errors import DrafterError
from breakeven.verifier.architecture import Architecture
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.lora import LoRASpec, RowLoRA
from breakeven.verifier.rows import Rows, causal
from test_decoder import lean
from tiny import FAMILIES, random_model, tiny_config


def random_adapter(verifier: LeanVerifier, spec: LoRASpec) -> RowLoRA:
    lora = RowLoRA(verifier.architecture, spec)
    torch.manual_seed(5)
    for p in lora.parameters():
        p.data.normal_(0, 0.2)
    return lora.requires_grad_(False)


@pytest.mark.parametrize("layers", [None, (1,)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_saved_folder_loads_in_peft_with_the_same_logits(
    family: str, layers: tuple[int, ...] | None, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    model = random_model(tiny_config(family))
    verifier = lean(model)
    lora = random_adapter(verifier, LoRASpec(rank=4, alpha=8.0, layers=layers))
    lora.save(tmp_path, "tiny")
    ids = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(12).expand(2, -1)
    rows = Rows(ids, positions, causal(12), gate=torch.ones(12, dtype=torch.bool))
    cache = verifier.new_cache(2, 12)
    ours = verifier.run(Phase.DRAFT, rows, cache, Ledger(), adapter=lora).logits
    with torch.no_grad():
        theirs = peft.PeftModel.from_pretrained(model, str(tmp_path))(ids).logits
    assert ours is not None
    assert (ours - theirs).abs().max() < 1e-4


def test_save_then_load_is_the_same_adapter(tmp_path: Path) -> None:
    verifier = lean(random_model(tiny_config()))
    lora = random_adapter(verifier, LoRASpec(rank=4, alpha=8.0))
    lora.save(tmp_path, "tiny")
    again = RowLoRA.load(tmp_path, verifier.architecture)
    assert again.spec == lora.spec
    for (name, a), (_, b) in zip(
        lora.state_dict().items(), again.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name


def test_t21_a_missing_key_is_named(tmp_path: Path) -> None:
    verifier = lean(random_model(tiny_config()))
    random_adapter(verifier, LoRASpec(rank=4)).save(tmp_path, "tiny")
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    gone = sorted(tensors)[3]
    del tensors[gone]
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(DrafterError, match=gone.replace(".", r"\.")):
        RowLoRA.load(tmp_path, verifier.architecture)


def test_an_adapter_of_another_size_is_refused(tmp_path: Path) -> None:
    verifier = lean(random_model(tiny_config()))
    random_adapter(verifier, LoRASpec(rank=4)).save(tmp_path, "tiny")
    other = lean(random_model(tiny_config(hidden=64)))
    with pytest.raises(DrafterError, match="trained for another model"):
        RowLoRA.load(tmp_path, other.architecture)


def test_broken_folders_are_one_line_errors(tmp_path: Path) -> None:
    architecture = lean(random_model(tiny_config())).architecture
    with pytest.raises(DrafterError, match=r"no adapter_config\.json"):
        RowLoRA.load(tmp_path, architecture)
    random_adapter(lean(random_model(tiny_config())), LoRASpec(rank=4)).save(tmp_path, "tiny")
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DrafterError, match="cannot be read"):
        RowLoRA.load(tmp_path, architecture)


def test_the_papers_trainable_count() -> None:
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        lora = RowLoRA(Architecture.from_config(config), LoRASpec(rank=16))
    count = sum(p.numel() for name, p in lora.named_parameters() if name != "mask_vector")
    assert count == 10_092_544
