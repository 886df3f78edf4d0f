"""Who a verifier is: hashes of its weights, tokenizer and chat template.

They stand in every artifact, run and checkpoint, so that a drafter or a benchmark made for one
model is never silently used with another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from breakeven.files import write_whole
from breakeven.verifier.int8 import GROUP, is_int8
from breakeven.verifier.places import cache_folder


@dataclass(frozen=True, slots=True)
class Identity:
    """Hashes are SHA-256, in hexadecimal. ``name`` is what the person typed, and ``+int8``."""

    name: str
    weights_sha256: str
    tokenizer_sha256: str
    chat_template_sha256: str


def identify(name: str, folder: Path, tokenizer: Any) -> Identity:
    """The identity of a model directory and its tokenizer.

    A ``name`` that asks for int8 weights is that of another verifier, with another hash.
    """
    weights = _weights_hash(sorted(folder.glob("*.safetensors")))
    if is_int8(name):
        weights = _text_hash(f"int8 in groups of {GROUP}: {weights}")
    return Identity(
        name=name,
        weights_sha256=weights,
        tokenizer_sha256=_text_hash(json.dumps(sorted(tokenizer.get_vocab().items()))),
        chat_template_sha256=_text_hash(str(tokenizer.chat_template)),
    )


def _weights_hash(files: list[Path]) -> str:
    """Hash of tensor names and values, in name order; remembered by path, size and time."""
    stamp = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    digest = hashlib.sha256()
    memo = cache_folder() / "identity" / f"{_text_hash(json.dumps(stamp))}.txt"
    if memo.is_file() and len(known := memo.read_text()) == 2 * digest.digest_size:
        return known
    for name, value in _tensors(files):
        digest.update(name.encode())
        digest.update(value)
    write_whole(memo, digest.hexdigest())
    return digest.hexdigest()


def _tensors(files: list[Path]) -> Iterable[tuple[str, Any]]:
    import torch

    where = {}
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            where.update(dict.fromkeys(tensors.keys(), file))
    for name in sorted(where):
        with safe_open(where[name], framework="pt") as tensors:
            yield name, tensors.get_tensor(name).contiguous().view(torch.uint8).numpy()


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
