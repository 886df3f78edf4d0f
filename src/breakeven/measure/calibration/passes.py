"""Time verifier passes of every width, context and batch, interleaved."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from breakeven.core import Phase
from breakeven.cost.curve import CostCurve
from breakeven.cost.ledger import Ledger
from breakeven.measure.calibration.pace import paces
from breakeven.measure.trial import quiet_collector
from breakeven.progress import meter
from breakeven.verifier.cache import KVCache
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain

FEWEST, MOST = 3, 40
"""Rounds over all cells, whatever the time allows."""

Cell = tuple[int, int, int]
"""Batch, context, width."""
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Ran(Generic[C]):
    """A cell has run, in round ``turn``; ``share`` (0–1) of all runs are over."""

    turn: int
    cell: C
    share: float


def in_rounds(
    label: str, cells: Sequence[C], seconds: float, seed: int, run: Callable[[C], None]
) -> Iterator[Ran[C]]:
    """Run every cell once a round, in a new order each, for about ``seconds`` of runs.

    Yields after each run. Round 0 warms up and tells how many more fit, between :data:`FEWEST`
    and :data:`MOST`.
    """
    order = random.Random(seed)
    began = time.perf_counter()
    for cell in cells:
        run(cell)
    once = time.perf_counter() - began
    rounds = max(FEWEST, min(MOST, int(seconds / max(once, 1e-9)) - 1))
    total, done = rounds * len(cells), 0
    with quiet_collector(), meter(label, total) as progress:
        for turn in range(1, rounds + 1):
            for cell in order.sample(list(cells), len(cells)):
                run(cell)
                done += 1
                progress.advance()
                yield Ran(turn, cell, done / total)


def measure_passes(
    verifier: Verifier, cells: Sequence[Cell], seconds: float, *, label: str, seed: int = 0
) -> dict[int, CostCurve]:
    """Cost curves by batch, from passes over random tokens as verification runs them.

    Nothing is committed: every pass of a cell attends to the same rows.
    """
    caches = _caches(verifier, cells, seed)
    tokens = torch.Generator().manual_seed(seed)
    took = 0.0

    def run(cell: Cell) -> None:
        nonlocal took
        batch, context, width = cell
        cache = caches[batch]
        cache.lengths.fill_(context)
        ids = torch.randint(verifier.shape.vocab_size, (batch, width), generator=tokens)
        ledger = Ledger()
        verifier.run(Phase.VERIFY, chain(ids, cache.lengths), cache, ledger, logits="choices")
        took = ledger.passes[0].seconds

    rounds: dict[int, dict[Cell, float]] = defaultdict(dict)
    for ran in in_rounds(label, cells, seconds, seed, run):
        rounds[ran.turn][ran.cell] = took
    samples: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for own, pace in zip(rounds.values(), paces(list(rounds.values())), strict=True):
        for (batch, context, width), spent in own.items():
            samples[batch].append((width, context, spent / pace))
    return {batch: CostCurve.from_samples(found) for batch, found in samples.items()}


def _caches(verifier: Verifier, cells: Sequence[Cell], seed: int) -> dict[int, KVCache]:
    """A cache for each batch, filled with the keys and values of random tokens."""
    longest = max(context for _, context, _ in cells)
    widest = max(width for _, _, width in cells)
    tokens = torch.Generator().manual_seed(seed)
    caches = {}
    for batch in sorted({batch for batch, _, _ in cells}):
        cache = verifier.new_cache(batch, longest + widest)
        ids = torch.randint(verifier.shape.vocab_size, (batch, longest), generator=tokens)
        verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger(), logits="none")
        caches[batch] = cache
    return caches
