"""Measure the cost curve: what a verifier pass of W rows takes, W by W, interleaved."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from breakeven.core import Phase
from breakeven.cost.curve import CostCurve
from breakeven.cost.ledger import Ledger
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 17)
CONTEXT = 100
ROUNDS, WARM_ROUNDS = 15, 2


def measure_cost_curve(
    verifier: Verifier,
    *,
    widths: Sequence[int] = WIDTHS,
    context: int = CONTEXT,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> CostCurve:
    """Time passes of every width over ``context`` cached rows of random tokens.

    Every round runs each width once in a new order; the first rounds warm up and do not count.
    Nothing is committed, so all passes attend to the same rows.
    """
    limit = verifier.shape.max_positions
    context = min(context, limit - max(widths))
    tokens = torch.Generator().manual_seed(seed)
    order = random.Random(seed)
    vocabulary = verifier.shape.vocab_size
    cache = verifier.new_cache(1, context + max(widths))
    prompt = torch.randint(vocabulary, (1, context), generator=tokens)
    verifier.run(Phase.PREFILL, chain(prompt, cache.lengths), cache, Ledger(), logits="none")
    cache.commit(context)
    samples = []
    with meter("cost curve", total=rounds + WARM_ROUNDS) as progress:
        for turn in range(rounds + WARM_ROUNDS):
            for width in order.sample(list(widths), len(widths)):
                rows = torch.randint(vocabulary, (1, width), generator=tokens)
                ledger = Ledger()
                verifier.run(Phase.VERIFY, chain(rows, cache.lengths), cache, ledger)
                if turn >= WARM_ROUNDS:
                    samples.append((width, context, ledger.passes[0].seconds))
            progress.advance()
    return CostCurve.from_samples(samples)
