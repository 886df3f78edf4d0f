"""What makes a result less sure than its interval says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

from breakeven.cost.curve import CostCurve
from breakeven.counting import counted

FEW_PROMPTS = 12
"""Fewer give intervals too wide to decide much: the number that every message asks for."""
DOUBT = "doubt: "
"""So a verdict's reason begins that makes the others less sure."""
DRIFT = 0.05
"""A change of the plain step during a run that is worth a warning."""


def warn(*doubts: str | None) -> list[str]:
    """Print the doubts there are on standard error, and return them."""
    found = [doubt for doubt in doubts if doubt]
    for doubt in found:
        print(f"warning: {doubt}", file=sys.stderr, flush=True)
    return found


def few_prompts(count: int) -> str | None:
    """The interval will be wide.

    >>> few_prompts(4)
    'wide intervals, from 4 prompts only: measure on 12 or more'
    """
    if count >= FEW_PROMPTS:
        return None
    return f"wide intervals, from {counted(count, 'prompt')} only: {more(count)}"


def more(count: int) -> str:
    """What to do about ``count`` prompts that were too few: the usual number, or twice as many.

    >>> more(1), more(20)
    ('measure on 12 or more', 'measure on 40 or more')
    """
    return f"measure on {FEW_PROMPTS if count < FEW_PROMPTS else 2 * count} or more"


def slow_plain_step(curve: CostCurve) -> str | None:
    """A wide pass is cheaper than a one-row pass, so plain decoding is not at its best.

    Then part of any gain comes from the baseline's slow kernels and not from accepted drafts.
    Said only when the quartiles of the two do not overlap, and with the context where it is so.
    """
    for context in curve.contexts:
        points = [p for p in curve.points if p.context == context]
        one = next(p for p in points if p.rows == 1)
        best = min(points, key=lambda p: p.seconds)
        if best.high < one.low:
            return (
                f"behind {context} tokens a pass of {best.rows} rows took "
                f"{best.seconds / one.seconds:.2f} of a one-row pass: plain decoding was slower "
                "than it could be, and speculation gained by it, or something slowed those passes"
            )
    return None


def drifted(steps: Sequence[float]) -> str | None:
    """Plain steps (seconds, in the order measured) became slower or faster, as in warm processors.

    >>> drifted([1.0, 1.0, 1.0, 1.0, 1.12, 1.12])
    'plain steps were 12 % slower at the end than at first: the machine throttles or is busy'
    >>> drifted([1.12, 1.12, 1.0, 1.0, 1.0, 1.0])
    'plain steps were 11 % faster at the end than at first: the machine was busy or cold at first'
    >>> drifted([1.0, 1.1, 1.0, 1.0, 1.1, 1.0]) is None
    True
    """
    third = len(steps) // 3
    if third < 1:
        return None
    change = median(steps[-third:]) / median(steps[:third]) - 1
    if abs(change) <= DRIFT:
        return None
    word, reason = (
        ("slower", "throttles or is busy")
        if change > 0
        else ("faster", "was busy or cold at first")
    )
    return (
        f"plain steps were {100 * abs(change):.0f} % {word} at the end than at first: "
        f"the machine {reason}"
    )
