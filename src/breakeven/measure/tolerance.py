"""How far an emitted token may lie below the best one before it is a bug and not rounding.

A pass of W rows runs other kernels than a pass of one row, so the same logits differ in their
last bits, and where two tokens are (nearly) level the choice may flip. If kernels move each logit
by at most ``noise``, a flip needs a gap of at most ``2 * noise``. The bounds below lie well above
the noise and far below ordinary margins between the best two tokens:

- fp64: 1e-9. Noise is about 1e-14.
- fp32: 1e-3. Between a one-row and a five-row pass the logits of SmolLM2-135M differ by up to
  1e-4, a tenth of it (316 tokens). A wrong token of a real bug hides under the bound only where
  the best two tokens happen to be that close: 9 of 7,713 positions of the same model's answers.
- bf16 and fp16: two units in the last place of the top logit (0.25 for bf16 logits of 16 to 32).

Where the fixed-width control (level L1) shows more noise than that, e.g. TF32 matrix products on
a GPU, the bound grows to twice the noise, but never beyond ten times the figures above: a bug
that spoils the control as well must not excuse itself. Noise beyond that is itself called a bug.
"""

from __future__ import annotations

import math

import torch

ABSOLUTE = {torch.float64: 1e-9, torch.float32: 1e-3}
FRACTION_BITS = {torch.bfloat16: 7, torch.float16: 10}
ULPS = 2
CEILING = 10


def tolerance(dtype: torch.dtype, top: float, noise: float = 0.0) -> float:
    """The largest gap, in logits, that counts as a near-tie.

    ``top`` is the best logit at the position, ``noise`` the largest difference between logits
    that the control has seen.

    >>> tolerance(torch.float32, top=20.0), tolerance(torch.bfloat16, top=20.0)
    (0.001, 0.25)
    """
    bound = _rounding(dtype, top)
    return min(max(bound, 2 * noise), CEILING * bound)


def ceiling(dtype: torch.dtype, top: float) -> float:
    """The most by which rounding may move a logit; what moves it further is a bug.

    >>> ceiling(torch.float32, top=20.0)
    0.01
    """
    return CEILING * _rounding(dtype, top)


def _rounding(dtype: torch.dtype, top: float) -> float:
    if dtype in ABSOLUTE:
        return ABSOLUTE[dtype]
    exponent = math.floor(math.log2(max(abs(top), 2.0**-14)))
    return float(ULPS * 2.0 ** (exponent - FRACTION_BITS[dtype]))
