"""The fixed-width control: plain decoding whose passes are padded to the verify width.

It drafts nothing and judges nothing, so whatever differs from plain decoding comes from the
kernels of the wider pass. Its flips are the noise ceiling of any speculative run at that width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.measure.tolerance import ceiling
from breakeven.verifier.cache import KVCache
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain


@dataclass(frozen=True, slots=True)
class Control:
    """What padding alone changes, along plain decoding's own outputs.

    ``flips`` are ``(request, position, token)`` where the padded pass prefers another token;
    ``noise`` is the largest difference between the logits of a padded and a one-row pass, and
    ``limit`` what rounding can explain of it.
    """

    width: int
    requests: int
    tokens: int
    noise: float
    limit: float
    flips: tuple[tuple[str, int, int], ...]

    @property
    def sound(self) -> bool:
        """Whether rounding explains what padding changes."""
        return self.noise <= self.limit

    def row(self) -> dict[str, Any]:
        """The entry in ``audit.json``."""
        return {
            "width": self.width,
            "requests": self.requests,
            "tokens": self.tokens,
            "noise": self.noise,
            "limit": self.limit,
            "flips": [dict(zip(("id", "position", "token"), f, strict=True)) for f in self.flips],
        }


def fixed_width_control(
    verifier: Verifier,
    outputs: Mapping[str, tuple[Sequence[int], Sequence[int]]],
    width: int,
) -> Control:
    """Walk along plain decoding's outputs (id -> prompt, tokens) with passes of ``width`` rows."""
    flips: list[tuple[str, int, int]] = []
    noise, top, count = 0.0, 0.0, 0
    for name, (prompt, tokens) in outputs.items():
        for position, (narrow, wide) in enumerate(_steps(verifier, prompt, tokens, width), start=1):
            noise = max(noise, float((narrow - wide).abs().max()))
            top = max(top, float(narrow.max()))
            choice = int(wide.argmax())
            if choice != tokens[position]:
                flips.append((name, position, choice))
            count += 1
    limit = ceiling(verifier.dtype, top)
    return Control(width, len(outputs), count, noise, limit, tuple(flips))


def _steps(
    verifier: Verifier, prompt: Sequence[int], tokens: Sequence[int], width: int
) -> Iterable[tuple[Tensor, Tensor]]:
    """Logits ``[V]`` after each token but the last: of a one-row pass and of a padded one.

    Each keeps its own cache, as two decodings would.
    """
    capacity = len(prompt) + len(tokens) + width
    caches = [verifier.new_cache(1, capacity) for _ in range(2)]
    for cache in caches:
        rows = chain(torch.tensor([list(prompt)]), cache.lengths)
        verifier.run(Phase.PREFILL, rows, cache, Ledger(), logits="none")
        cache.commit(len(prompt))
    for token in tokens[:-1]:
        narrow, wide = (
            _step(verifier, c, token, w) for c, w in zip(caches, (1, width), strict=True)
        )
        yield narrow, wide


def _step(verifier: Verifier, cache: KVCache, token: int, width: int) -> Tensor:
    """Logits of ``token``'s row in a pass of ``width`` rows; the padding is not kept."""
    ids = torch.zeros(1, width, dtype=torch.long)
    ids[0, 0] = token
    rows = chain(ids, cache.lengths)
    rows = replace(rows, positions=rows.positions.clamp(max=verifier.shape.max_positions - 1))
    out = verifier.run(Phase.VERIFY, rows, cache, Ledger())
    cache.commit(1)
    assert out.logits is not None
    return out.logits[0, 0].float() if out.logits.dtype != torch.float64 else out.logits[0, 0]
