"""The lean decoder and the fallback are transformers' models, to the last digit that matters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.errors import ModelError
from breakeven.verifier.architecture import Architecture
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.fallback import TransformersVerifier
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rotary import Rotary
from breakeven.verifier.rows import chain
from tiny import FAMILIES, random_model, tiny_config

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied": {"tie_word_embeddings": False},
    "multi-head": {"kv_heads": 4},
    "one-kv-head": {"kv_heads": 1},
}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
}


def lean(model: PreTrainedModel) -> LeanVerifier:
    architecture = Architecture.from_config(model.config)
    rotary = Rotary.from_config(model.config, architecture, torch.float32)
    tensors = {k: v.detach() for k, v in model.state_dict().items()}
    return LeanVerifier(architecture, rotary, tensors, "test")


def logits_of(verifier: Verifier, ids: torch.Tensor, split: int) -> torch.Tensor:
    """Logits of every row, computed as a prefill of ``split`` rows and a pass over the rest."""
    cache, ledger = verifier.new_cache(len(ids), ids.shape[1]), Ledger()
    parts = []
    for part in (ids[:, :split], ids[:, split:]):
        out = verifier.run(Phase.PLAIN, chain(part, cache.lengths), cache, ledger)
        cache.commit(part.shape[1])
        parts.append(out.logits)
    return torch.cat(parts, dim=1)  # type: ignore[arg-type]


def check(verifier: Verifier, model: PreTrainedModel) -> None:
    ids = torch.randint(0, 64, (3, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids).logits
    for split in (1, 9, 23):
        assert (logits_of(verifier, ids, split) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(family: str, variant: str) -> None:
    model = random_model(tiny_config(family, **VARIANTS[variant]))
    check(lean(model), model)


def test_biases_of_llama_and_qwen3_configs() -> None:
    for family, extra in (
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen3", {"attention_bias": True}),
    ):
        model = random_model(tiny_config(family, **extra))
        check(lean(model), model)


@pytest.mark.parametrize("rope", ROPES)
def test_rope_types(rope: str) -> None:
    parameters = {"rope_theta": 10000.0, **ROPES[rope]}
    model = random_model(tiny_config("llama", rope_parameters=parameters))
    check(lean(model), model)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers_over_128_tokens(family: str) -> None:
    model = random_model(tiny_config(family))
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6, 5, 3], [5]]
    asked = [Request(str(i), tuple(p), 128) for i, p in enumerate(prompts)]
    for batch in (1, 3):  # 3: prompts of unequal length, padded
        done = {c.id: c.tokens for c in generate(lean(model), asked, batch=batch)}
        for i, prompt in enumerate(prompts):
            expected = model.generate(
                torch.tensor([prompt]),
                max_new_tokens=128,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )[0, len(prompt) :].tolist()
            assert done[str(i)] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_t19_taps_are_the_outputs_of_their_blocks(family: str) -> None:
    model = random_model(tiny_config(family, layers=3))
    verifier, seen = lean(model), {}
    for i, layer in enumerate(model.model.layers):
        layer.register_forward_hook(
            lambda _m, _a, out, i=i: seen.__setitem__(i, out[0] if isinstance(out, tuple) else out)
        )
    ids = torch.randint(0, 64, (4, 12), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        model(ids)
    cache = verifier.new_cache(4, 12)
    rows = chain(ids, cache.lengths)
    out = verifier.run(Phase.PREFILL, rows, cache, Ledger(), taps=(0, 1, 2), logits="none")
    for i in range(3):
        torch.testing.assert_close(out.taps[i], seen[i], atol=1e-4, rtol=1e-4)
    single = verifier.new_cache(1, 12)  # batch 1 against batch 4
    one = verifier.run(Phase.PREFILL, chain(ids[:1], single.lengths), single, Ledger(), taps=(1,))
    torch.testing.assert_close(one.taps[1], out.taps[1][:1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "kind", ["gpt2", "gpt_neox", "opt", "gemma", "gemma2", "phi", "stablelm", "granite", "llama"]
)
def test_the_fallback_runs_other_families_exactly(kind: str) -> None:
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "n_embd": 32,
        "ffn_dim": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "n_layer": 2,
        "num_attention_heads": 4,
        "n_head": 4,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "word_embed_proj_dim": 32,
        "num_key_value_heads": 2,
        "sliding_window": 256,
    }
    config = AutoConfig.for_model(kind)
    model = random_model(
        AutoConfig.for_model(kind, **{k: v for k, v in sizes.items() if hasattr(config, k)})
    )
    verifier = TransformersVerifier(model, kind)
    ids = torch.randint(0, 64, (3, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids).logits
    for split in (1, 9, 23):
        assert (logits_of(verifier, ids, split) - expected).abs().max() < 1e-3
    asked = [Request(str(i), (3, 1, 4)[: i + 1], 12) for i in range(3)]
    one = {c.id: c.tokens for c in generate(verifier, asked)}
    assert {c.id: c.tokens for c in generate(verifier, asked, batch=3)} == one


@pytest.mark.parametrize("kind", ["mamba", "rwkv", "recurrent_gemma", "falcon_mamba"])
def test_t12_models_that_cannot_be_cut_back_are_refused(kind: str) -> None:
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    extra = {"lru_width": 32, "num_attention_heads": 4} if kind == "recurrent_gemma" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **extra)).eval()
    with pytest.raises(ModelError, match="cannot be cut back"):
        TransformersVerifier(model, kind)
