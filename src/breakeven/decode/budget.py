"""How much memory the keys and values of a batch take, and how much they may take.

The cache is allocated once: as many slots as requests run at once, each with room for the longest
request. So its size is known before anything is computed:

    requests at once × rows of the longest request × bytes of a row

A budget makes fewer requests run at once; a request that alone needs more is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.errors import DataError
from breakeven.verifier.interface import Verifier


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The verifier's cache of a batch (a drafter with a cache of its own comes on top)."""

    slots: int
    """Requests at once."""
    rows: int
    """Rows each slot has room for."""
    row_bytes: int
    """Bytes of keys and values of one row, all layers."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.slots * self.rows * self.row_bytes

    def __str__(self) -> str:
        """The arithmetic.

        >>> print(CachePlan(slots=8, rows=600, row_bytes=46080))
        8 requests × 600 rows × 46,080 bytes = 221.2 MB
        """
        count = "1 request" if self.slots == 1 else f"{self.slots} requests"
        sizes = f"{self.rows} rows × {self.row_bytes:,} bytes"
        return f"{count} × {sizes} = {self.nbytes / 1e6:.1f} MB"


def plan_cache(
    verifier: Verifier,
    requests: Iterable[Request],
    *,
    batch: int,
    drafter: Drafter | None = None,
    k: int = 0,
    limit: int | None = None,
) -> CachePlan:
    """The cache for ``requests`` (at least one), at most ``batch`` at once and ``limit`` bytes.

    Raises :class:`DataError` for a request that does not fit ``limit`` alone.
    """
    requests = list(requests)
    extra = k + 1 + drafter.scratch_rows if drafter is not None else 1
    longest = max(requests, key=lambda r: _rows(r, verifier))
    rows = _rows(longest, verifier) + extra
    plan = CachePlan(min(batch, len(requests)), rows, row_bytes(verifier))
    if limit is None or plan.nbytes <= limit:
        return plan
    slots = limit // (rows * plan.row_bytes)
    if slots < 1:
        need = CachePlan(1, rows, plan.row_bytes)
        raise DataError(
            f"request '{longest.id}': {len(longest.prompt)} prompt tokens, up to "
            f"{rows - extra - len(longest.prompt)} new ones and {extra} rows of a round need a "
            f"cache of {need}, the budget is {limit / 1e6:.1f} MB; shorten it, ask for fewer "
            "tokens or give more memory"
        )
    return CachePlan(slots, rows, plan.row_bytes)


def row_bytes(verifier: Verifier) -> int:
    """Bytes of the keys and values of one row in all layers."""
    s = verifier.shape
    return 2 * s.layers * s.kv_heads * s.head_dim * verifier.dtype.itemsize


def _rows(request: Request, verifier: Verifier) -> int:
    return min(len(request.prompt) + request.max_new_tokens, verifier.shape.max_positions)
