"""Time passes of several widths over the same cached rows, interleaved."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch

from breakeven.core import Phase
from breakeven.cost.curve import CostCurve
from breakeven.cost.ledger import Ledger
from breakeven.verifier.interface import Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import BlockShape, Rows, chain, with_groups

Sample = tuple[int, int, float]
"""Rows, cached rows, seconds."""

QUICK_WIDTHS, QUICK_CONTEXT, QUICK_ROUNDS = (1, 2, 3, 5, 9, 17), 64, 5


def time_widths(
    verifier: Verifier,
    widths: Sequence[int],
    *,
    context: int,
    rounds: int,
    seed: int = 0,
    adapter: RowLoRA | None = None,
) -> Iterator[list[Sample]]:
    """One list a round: every width once, in a new order, over ``context`` random cached tokens.

    Nothing is committed, so all passes attend to the same rows. With an ``adapter`` all rows of a
    pass but the first are its masks.
    """
    context = max(0, min(context, verifier.shape.max_positions - max(widths)))
    vocabulary = verifier.shape.vocab_size
    tokens, order = torch.Generator().manual_seed(seed), random.Random(seed)
    cache = verifier.new_cache(1, context + max(widths))
    prompt = torch.randint(vocabulary, (1, context), generator=tokens)
    if context:
        verifier.run(Phase.PREFILL, chain(prompt, cache.lengths), cache, Ledger(), logits="none")
        cache.commit(context)
    for _ in range(rounds):
        samples = []
        for width in order.sample(list(widths), len(widths)):
            rows = chain(torch.randint(vocabulary, (1, width), generator=tokens), cache.lengths)
            masked = adapter is not None and width > 1
            rows = _masks_behind(rows) if masked else rows
            ledger = Ledger()
            verifier.run(
                Phase.VERIFY,
                rows,
                cache,
                ledger,
                adapter=adapter if masked else None,
                logits="choices",
            )
            samples.append((width, context, ledger.passes[0].seconds))
        yield samples


def _masks_behind(rows: Rows) -> Rows:
    """As many rows, of which all but the first are one group of masks."""
    return with_groups(rows.head(1), BlockShape(rows.width - 1), 1)


def quick_curve(verifier: Verifier, widest: int, adapter: RowLoRA | None = None) -> CostCurve:
    """A rough cost curve up to ``widest`` rows in a few dozen passes; the first round warms up.

    With an ``adapter`` the rows behind the first are its masks, as in a fused pass.
    """
    widest = min(widest, verifier.shape.max_positions)
    widths = sorted({w for w in QUICK_WIDTHS if w < widest} | {1, widest})
    runs = time_widths(
        verifier, widths, context=QUICK_CONTEXT, rounds=QUICK_ROUNDS + 1, adapter=adapter
    )
    _, *measured = runs
    return CostCurve.from_samples(sample for run in measured for sample in run)
