"""A byte tokenizer with a chat template, and a tiny verifier loaded with it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from breakeven.verifier.identity import Identity
from breakeven.verifier.load import Loaded
from tiny import tiny_config, tiny_verifier, write_model

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = TEMPLATE + "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
EOS = 257


def byte_tokenizer(template: str | None = TEMPLATE) -> Any:
    """256 bytes and the two ChatML markers, ids 0..257."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE({c: i for i, c in enumerate(alphabet)}, [])
    raw = Tokenizer(model)
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")
    tokenizer.chat_template = template
    return tokenizer


def chat_model(folder: Path) -> Path:
    """A complete model directory with the byte tokenizer and its chat template."""
    return write_model(folder, tiny_config(vocab=264, eos_token_id=EOS), byte_tokenizer())


@cache
def tiny_loaded() -> Loaded:
    """A random fp32 verifier over the byte vocabulary."""
    verifier = tiny_verifier(vocab=264, dtype=torch.float32)
    identity = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)
    return Loaded(verifier, byte_tokenizer(), identity, frozenset({EOS}), Path("tiny"))
