"""Measure the cost curve: what a verifier pass of W rows takes, W by W, interleaved."""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.cost.curve import CostCurve
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier
from breakeven.verifier.timing import time_widths

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
    samples = []
    with meter("cost curve", total=rounds + WARM_ROUNDS) as progress:
        runs = time_widths(
            verifier, widths, context=context, rounds=rounds + WARM_ROUNDS, seed=seed
        )
        for turn, run in enumerate(runs):
            if turn >= WARM_ROUNDS:
                samples += run
            progress.advance()
    return CostCurve.from_samples(samples)
