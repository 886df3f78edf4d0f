"""The cost curve in the clock of the rounds, which are what decoding pays.

Passes timed by themselves and the verify passes of rounds are measured at different minutes, and a
short cost curve is noisy. Where rounds have verified a width, their price is the better one: the
curve is moved so that it goes through it, and keeps its shape elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from statistics import median

from breakeven.cost.calibration import Curves
from breakeven.cost.curve import CostCurve, Point


def levelled(curves: Curves, base: int, seen: Curves) -> dict[int, CostCurve]:
    """The curves in the clock of the rounds, whose verify passes by batch and width are ``seen``.

    Passes and rounds are timed one after the other, and the machine may have changed in between.
    A width that rounds have verified gets the price seen there behind the base context, and the
    same factor behind the others; the remaining widths get the middle factor. A width that only
    rounds have had is one of the curve's then. ``seen`` may be in another unit, such as plain
    steps; so is the result then.
    """
    known = {
        batch: sorted([*curve.points, *(_more(curve, seen[batch]) if batch in seen else ())])
        for batch, curve in curves.items()
    }
    factors = {
        (batch, p.rows): p.seconds / curves[batch].seconds(p.rows, base)
        for batch, curve in seen.items()
        for p in curve.points
    }
    middle = median(f for (batch, rows), f in factors.items() if rows in curves[batch].widths)
    return {
        batch: CostCurve(
            tuple(
                replace(p, seconds=factor * p.seconds, low=factor * p.low, high=factor * p.high)
                for p in points
                for factor in (factors.get((batch, p.rows), middle),)
            )
        )
        for batch, points in known.items()
    }


def through(curve: CostCurve, widths: Mapping[int, float], price: float, one: float) -> CostCurve:
    """The curve of one request in plain steps, through what rounds of mixed widths paid.

    ``widths`` are the rows of their verify passes with the share of each, ``price`` is their mean
    price (c_v), ``one`` what a plain step's own pass costs. A round of one row costs that; the
    wider ones share the rest in the curve's proportions. No pass is cheaper than one row, unless
    the mean is.

    >>> curve = CostCurve.of({1: 0.020, 2: 0.022, 5: 0.030})
    >>> level = through(curve, {1: 0.5, 5: 0.5}, price=1.07, one=0.98)
    >>> [round(level.seconds(rows), 2) for rows in (1, 2, 5)]
    [0.98, 0.98, 1.16]
    """
    shape = {rows: curve.relative(rows) for rows in widths}
    flat, rest = {1}, set(widths) - {1}
    one = min(one, price) if rest else price
    factor = 0.0
    while rest:
        left = price - one * sum(widths.get(rows, 0.0) for rows in flat)
        factor = left / sum(widths[rows] * shape[rows] for rows in rest)
        cheap = {rows for rows in rest if factor * shape[rows] < one}
        if not cheap:
            break
        flat, rest = flat | cheap, rest - cheap
    seen = dict.fromkeys(flat, one) | {rows: factor * shape[rows] for rows in rest}
    base = curve.contexts[len(curve.contexts) // 2]
    level = levelled({1: curve}, base, {1: CostCurve.of(seen, base)})[1]
    return CostCurve(
        tuple(
            replace(p, seconds=max(one, p.seconds), low=max(one, p.low), high=max(one, p.high))
            for p in level.points
        )
    )


def _more(curve: CostCurve, seen: CostCurve) -> Iterator[Point]:
    """Points of the widths that ``curve`` lacks and ``seen`` has, read off the former."""
    for context, rows in product(curve.contexts, set(seen.widths) - set(curve.widths)):
        seconds = curve.seconds(rows, context)
        yield Point(context, rows, seconds, seconds, seconds)
