"""A verifier's head, or some of its rows, for drafts alone."""

from __future__ import annotations

from torch import Tensor

from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.int8 import Int8
from breakeven.verifier.linear import FrozenLinear
from breakeven.verifier.native.body import obstacle


def draft_head(verifier: LeanVerifier, weight: Tensor, *, int8: bool = True) -> FrozenLinear:
    """Rows ``weight`` ``[outputs, H]`` of the verifier's head, packed: ``[..., H]`` to logits.

    With ``int8`` they are rounded where the CPU kernels run: only drafts depend on them.
    """
    rounded = int8 and obstacle(verifier.architecture, weight.dtype, weight.device) is None
    head = FrozenLinear(Int8.nearest(weight) if rounded else weight)
    head.pack(drafts=True)
    return head
