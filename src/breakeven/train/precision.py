"""The type in which the frozen verifier runs during training.

Trained weights, their gradients and the optimizer stay in fp32; only products with them are made
in the type chosen here. Processors that multiply bf16 (AVX512-BF16, AMX) take less time for a step
so; on others bf16 is emulated and slow, and ``auto`` stays with fp32.
"""

from __future__ import annotations

from typing import Literal

import torch

from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.precision import multiplies

Precision = Literal["auto", "float32", "bfloat16"]


def training_type(choice: Precision, dtype: torch.dtype, device: str) -> torch.dtype:
    """The type for a verifier that decodes in ``dtype`` on ``device``.

    >>> training_type("float32", torch.float32, "cpu")
    torch.float32
    >>> training_type("auto", torch.float64, "cpu")
    torch.float64
    """
    if choice == "auto":
        fast = device == "cpu" and dtype is torch.float32 and multiplies(torch.bfloat16)
        return torch.bfloat16 if fast else dtype
    return torch.bfloat16 if choice == "bfloat16" else torch.float32


def teacher_of(verifier: LeanVerifier, choice: Precision) -> LeanVerifier:
    """The verifier to train with: ``verifier`` itself, or the same weights in another type."""
    wanted = training_type(choice, verifier.dtype, verifier.device.type)
    return verifier if wanted is verifier.dtype else verifier.recast(wanted)
