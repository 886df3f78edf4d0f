"""The compiled library: its structs and functions as Python sees them, and whether it is active.

Pointers are addresses of fp32 (or int64, bool) torch tensors that the caller keeps alive.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from breakeven.verifier.native.build import BuildError, build

SWITCH = "BREAKEVEN_NATIVE"
GROUPS = 4  # qkv, o, gate_up, down
FP32, INT8, W8A8 = range(3)  # kinds of weights (``whole.hpp``)


class Projections(ctypes.Structure):
    """The projections packed in one linear (``panels.hpp``)."""

    _fields_ = (
        ("count", c_int32),
        ("interleaved", c_int32),
        ("kind", c_int64),
        ("inputs", c_int64),
        ("outputs", c_int64 * 3),
    )


class Layer(ctypes.Structure):
    """Weights of one decoder layer (``body.hpp``)."""

    _fields_ = (
        ("norm_input", c_void_p),
        ("norm_post", c_void_p),
        ("norm_q", c_void_p),
        ("norm_k", c_void_p),
        ("panels", c_void_p * GROUPS),
        ("bias", c_void_p * GROUPS),
    )


class Model(ctypes.Structure):
    """Sizes and weights of a decoder (``body.hpp``)."""

    _fields_ = (
        ("layers", c_int64),
        ("hidden", c_int64),
        ("intermediate", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("layer", POINTER(Layer)),
        ("norm", c_void_p),
        ("epsilon", c_float),
        ("kind", c_int64),
    )


class Adapter(ctypes.Structure):
    """Low-rank deltas of a pass (``body.hpp``)."""

    _fields_ = (
        ("rank", c_int64),
        ("gate", c_void_p),
        ("down", POINTER(c_void_p)),
        ("up", POINTER(c_void_p)),
        ("scale", c_float),
    )


class Pass(ctypes.Structure):
    """One pass of the body (``body.hpp``)."""

    _fields_ = (
        ("threads", c_int64),
        ("batch", c_int64),
        ("width", c_int64),
        ("taps", c_int64),
        ("x", c_void_p),
        ("positions", c_void_p),
        ("lengths", c_void_p),
        ("past", c_void_p),
        ("sees", c_void_p),
        ("sees_step", c_int64),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("layer_step", c_int64),
        ("batch_step", c_int64),
        ("head_step", c_int64),
        ("tap_layers", POINTER(c_int64)),
        ("tap_outputs", POINTER(c_void_p)),
        ("adapter", POINTER(Adapter)),
        ("order", POINTER(c_int64)),
        ("count", c_int64),
    )


SIGNATURES = {
    "breakeven_instructions": (c_char_p, ()),
    "breakeven_crowded": (c_int64, ()),
    "breakeven_multiplies_int8": (c_int32, ()),
    "breakeven_sizes": (None, (POINTER(c_int64),)),
    "breakeven_pack": (None, (POINTER(Projections), c_void_p, c_void_p)),
    "breakeven_pack_int8": (None, (POINTER(Projections), c_void_p, c_void_p, c_void_p)),
    "breakeven_unpack": (None, (POINTER(Projections), c_void_p, c_void_p)),
    "breakeven_rows": (None, (POINTER(Projections), c_void_p, c_int64, c_void_p, c_void_p)),
    "breakeven_body": (None, (POINTER(Model), POINTER(Pass))),
    "breakeven_linear": (
        None,
        (c_int64, POINTER(Projections), *[c_void_p] * 2, c_int64, *[c_void_p] * 4),
    ),
}


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the native path can be used here, and why (not)."""

    active: bool
    reason: str
    path: Path | None = None


def status() -> Status:
    """Say whether the native path is active; builds the library when that was not done yet."""
    if os.environ.get(SWITCH, "1") == "0":
        return Status(False, f"switched off by {SWITCH}=0")
    return _state()[0]


def kernels() -> ctypes.CDLL | None:
    """The library, built and loaded at first use; None (with one warning) where that fails."""
    if not status().active:
        return None
    return _state()[1]


def draft_kind() -> int:
    """How int8 weights are stored that only draft: :data:`W8A8`, which rounds activations to 8
    bits as well, where this processor multiplies such numbers, else :data:`INT8`.
    """
    library = kernels()
    return W8A8 if library is not None and library.breakeven_multiplies_int8() else INT8


def crowded() -> int:
    """Calls so far that used fewer threads than asked for, as other processes held the cores."""
    library = kernels()
    return 0 if library is None else int(library.breakeven_crowded())


@cache
def _state() -> tuple[Status, ctypes.CDLL | None]:
    try:
        path = build()
        library = opened(path)
    except (BuildError, OSError) as error:
        reason = str(error)
        warnings.warn(
            f"CPU kernels not available: {reason}; passes run in PyTorch, two to three times "
            f"slower. Install a C++ compiler (g++ or clang++), or set {SWITCH}=0 to hide this",
            stacklevel=4,
        )
        return Status(False, reason), None
    kind = library.breakeven_instructions().decode()
    return Status(True, f"compiled for {kind}", path), library


def opened(path: Path) -> ctypes.CDLL:
    """A compiled library with its functions declared."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
