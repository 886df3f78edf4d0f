"""The type in which the frozen verifier runs during training.

Trained weights, their gradients and the optimizer stay in fp32; only products with them are made
in the type chosen here. On processors that multiply bf16 (AVX512-BF16, AMX) this halves the time
of a step; on others bf16 is emulated and slow, so ``auto`` stays with fp32 there.
"""

from __future__ import annotations

from typing import Literal

import torch

from breakeven.verifier.decoder import LeanVerifier

Precision = Literal["auto", "float32", "bfloat16"]


def multiplies_bf16() -> bool:
    """Whether this processor has instructions for products of bf16 numbers."""
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def training_type(choice: Precision, dtype: torch.dtype, device: str) -> torch.dtype:
    """The type for a verifier that decodes in ``dtype`` on ``device``.

    >>> training_type("float32", torch.float32, "cpu")
    torch.float32
    >>> training_type("auto", torch.float64, "cpu")
    torch.float64
    """
    if choice == "auto":
        fast = device == "cpu" and dtype is torch.float32 and multiplies_bf16()
        return torch.bfloat16 if fast else dtype
    return torch.bfloat16 if choice == "bfloat16" else torch.float32


def teacher_of(verifier: LeanVerifier, choice: Precision) -> LeanVerifier:
    """The verifier to train with: ``verifier`` itself, or the same weights in another type."""
    wanted = training_type(choice, verifier.dtype, verifier.device.type)
    return verifier if wanted is verifier.dtype else verifier.recast(wanted)
