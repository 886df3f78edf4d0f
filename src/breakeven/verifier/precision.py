"""Number types a verifier can decode in, and whether this processor computes in them."""

from __future__ import annotations

import warnings

import torch

from breakeven.errors import ModelError, nearest

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
"""Name on the command line -> type."""

INSTRUCTIONS = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16", "fp16_arith"),
}
"""Half-precision type -> instruction sets that multiply it, as PyTorch names them."""


def dtype_named(name: str) -> torch.dtype:
    """The type called ``name``; raises :class:`ModelError` for another word.

    >>> dtype_named("bf16")
    torch.bfloat16
    """
    if name not in DTYPES:
        raise ModelError(f"dtype '{name}': {nearest(name, DTYPES)}")
    return DTYPES[name]


def check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a type that no verifier decodes in; warn where the CPU can only emulate it."""
    if dtype not in DTYPES.values():
        known = ", ".join(DTYPES)
        raise ModelError(f"dtype {str(dtype)[6:]}: a verifier decodes in {known}")
    if device.type == "cpu" and dtype in INSTRUCTIONS and not multiplies(dtype):
        name = next(word for word, kind in DTYPES.items() if kind is dtype)
        wanted = " or ".join(INSTRUCTIONS[dtype])
        warnings.warn(
            f"{name} on this processor is emulated, many times slower than fp32: it has no "
            f"{wanted}; use fp32",
            stacklevel=3,
        )


def multiplies(dtype: torch.dtype) -> bool:
    """Whether this processor has instructions for products of a half-precision type."""
    known = torch.cpu.get_capabilities()
    return any(known.get(name) for name in INSTRUCTIONS[dtype])
