"""Which keys a recursive step sees in training: the layout of FastMTP's decoding, for all roots.

In decoding, step k of a round stands k - 1 positions behind the last committed row and sees the
committed rows (made by step 1 from true states) and the recursed rows of its own round. Training
runs all rounds of a text at once: *origin* i is the step-1 row a round would start from; its row
of step k sees step-1 rows 0..i and the rows of steps 2..k of the same origin (the training-time
test of EAGLE-3, ALGORITHMS 2.2 and 5). FastMTP as published trains each step on its own instead,
plain causal, which decoding never does (:class:`~breakeven.verifier.cache.NoPast`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from breakeven.verifier.cache import Span
from breakeven.verifier.rows import Rows


class CrossSteps:
    """A past that grows by one step per pass; differentiable through all of it.

    The first pass is causal over ``[B, T]`` rows. In later ones row j belongs to origin
    ``rows.past[b, j] - 1``, and all have the same origins in the same order.
    """

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def span(self, rows: Rows) -> Span:
        """Plan a pass: step-1 rows up to the origin, then one row per earlier step."""
        batch, width = rows.batch, rows.width
        mask = rows.sees.expand(batch, width, width)
        if self._keys:
            assert rows.past is not None
            first = torch.arange(self._keys[0].shape[2], device=rows.past.device)
            committed = first[None, None] < rows.past[:, :, None]  # [B, O, T]
            own = torch.eye(width, dtype=torch.bool, device=rows.past.device)
            chain = own.repeat(1, len(self._keys) - 1).expand(batch, -1, -1)
            mask = torch.cat((committed, chain, mask), dim=2)
        stop = mask.shape[2]
        slots = torch.arange(stop - width, stop).expand(batch, width)
        return Span(slots, stop, mask, stop - width)

    def extend(self, layer: int, keys: Tensor, values: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """Everything so far and the new rows, ``[B, H_kv, stop, d]``."""
        self._keys.append(keys)
        self._values.append(values)
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)


def recursed(origins: Tensor, step: int) -> Rows:
    """The rows of recursive step ``step`` (2, 3, …) for ``[B, O]`` origins.

    >>> rows = recursed(torch.tensor([[3, 4]]), step=2)
    >>> rows.positions.tolist(), rows.past.tolist()
    ([[4, 5]], [[4, 5]])
    """
    return Rows(
        token_ids=torch.zeros_like(origins),
        positions=origins + step - 1,
        sees=torch.eye(origins.shape[1], dtype=torch.bool, device=origins.device),
        past=origins + 1,
    )
