"""Tiny random verifiers of every family, and their transformers twins."""

from __future__ import annotations

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


def twin(verifier: LeanVerifier, config: Any, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    """The transformers model with the same weights."""
    model = AutoModelForCausalLM.from_config(config, dtype=verifier.dtype)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all("lm_head" in key or "rotary" in key for key in missing)
    return model.eval()
