"""Tiny random verifiers of every family, and their transformers twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from breakeven.verifier.decoder import LeanVerifier

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def tiny_config(
    family: str = "llama",
    vocab: int = 64,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    **extra: Any,
) -> Any:
    """A small config; ``extra`` goes to transformers unchanged."""
    sizes = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    }
    return AutoConfig.for_model(family, **{**sizes, **extra})


def tiny_verifier(
    family: str = "llama", dtype: torch.dtype = torch.float64, seed: int = 0, **sizes: Any
) -> LeanVerifier:
    """A random lean verifier."""
    return LeanVerifier.from_config(tiny_config(family, **sizes), seed=seed, dtype=dtype)


def random_model(config: Any, seed: int = 0) -> PreTrainedModel:
    """A transformers model whose every weight matters."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, p in model.named_parameters():
        p.data.normal_(1.0 if "norm" in name and p.dim() == 1 else 0.0, 0.2)
    return model


def write_model(folder: Path, config: Any, tokenizer: Any) -> Path:
    """A complete model directory."""
    random_model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def twin(verifier: LeanVerifier, config: Any, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    """The transformers model with the same weights."""
    model = AutoModelForCausalLM.from_config(config, dtype=verifier.dtype)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all("lm_head" in key or "rotary" in key for key in missing)
    return model.eval()
