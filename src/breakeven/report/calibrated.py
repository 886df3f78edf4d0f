"""The oracle of a calibration: no drafter is trained, its prices are known, acceptance is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from breakeven.cost.breakeven import RoundCost, expected_committed
from breakeven.cost.calibration import Calibration
from breakeven.cost.oracle import Oracle, RoundTime
from breakeven.counting import counted
from breakeven.errors import DataError, nearest
from breakeven.report.prospect import Line, ladder_lines
from breakeven.report.variations import USUAL, Ladder, WhatIf

AXES = "the verifier's passes"
"""Where the lines stand that hold for every drafter."""


def calibrated_lines(
    found: Calibration,
    rates: Sequence[float] = (),
    drafter: str | None = None,
    what: WhatIf = USUAL,
) -> tuple[str, list[Line]]:
    """What each drafter would be worth at conditional acceptance ``rates`` (none: what it needs).

    ``drafter`` keeps to one. Rates hold for guesses; a free first token takes none.
    """
    if drafter is not None and drafter not in found.drafters:
        raise DataError(f"no drafter '{drafter}'; {nearest(drafter, found.drafters)}")
    title = (
        f"{found.verifier['name']}, {found.mode}, {counted(found.threads, 'thread')}: plain "
        "decoding"
        f" {1 / found.step_seconds:.1f} tok/s behind {found.base} tokens"
    )
    if rates:
        title += f"; rates {', '.join(f'{rate:g}' for rate in rates)}, each given the drafts before"
    names = list(found.drafters) if drafter is None else [drafter]
    lines = [line for name in names for line in _drafter_lines(found, name, rates, what)]
    return title, [*lines, *_axes(found)]


def ladder_of(found: Calibration, drafter: str, rates: Sequence[float], batch: int = 1) -> Ladder:
    """Every K up to the longest measured one, with the rates that go on beyond the last."""
    longest = max(found.draft_lengths(drafter))
    free = longest + 1 - found.verify_rows(drafter, longest)
    survival, left = [], 1.0
    for i in range(longest):
        left *= 1.0 if i < free else rates[min(i - free, len(rates) - 1)]
        survival.append(left)
    step = found.step(batch=batch)
    return Ladder(
        tuple(survival),
        lambda k: found.draft_seconds(drafter, k, batch) / step,
        lambda k: found.seconds(found.verify_rows(drafter, k), batch=batch) / step,
        found.outside(drafter, longest, batch) / step,
        free,
    )


def _drafter_lines(
    found: Calibration, name: str, rates: Sequence[float], what: WhatIf
) -> Iterator[Line]:
    if not rates:
        for k in found.draft_lengths(name):
            cost = found.round_cost(name, k)
            yield _need(name, k, cost)
        return
    ladder = ladder_of(found, name, rates)
    k = ladder.best.k or len(ladder.survival)
    cost, committed = found.round_cost(name, k), expected_committed(ladder.survival[:k])
    yield _need(name, k, cost)
    yield from _oracle(found, name, cost, committed)
    yield from ladder_lines(name, ladder, what)
    for batch in sorted(found.curves)[1:]:
        best = ladder_of(found, name, rates, batch).best
        meaning = f"With K = {best.k}." if best.k else "Plain decoding is fastest there."
        yield Line(f"Best of {batch} requests together", None, best.speed, "×", meaning, name)


def _need(name: str, k: int, cost: RoundCost) -> Line:
    end = f"{counted(k, 'draft')} can commit at most {k + 1} tokens."
    if cost.break_even < 1:
        end = "so it pays whatever is accepted."
    meaning = (
        f"Break-even: draft {cost.draft:.2f} + verify {cost.verify:.2f} + rest {cost.other:.2f}"
        f" plain steps; {end}"
    )
    return Line(f"AL needed with K = {k}", 0, cost.break_even, "tokens a round", meaning, name)


def _oracle(found: Calibration, name: str, cost: RoundCost, committed: float) -> Iterator[Line]:
    step = found.step_seconds
    time = RoundTime(cost.draft * step, cost.verify * step, cost.other * step)
    oracle = Oracle(committed, time, 1 / step)
    earns = f"{committed:.2f} tokens a round at this acceptance."
    yield Line("Expected speed", 0, oracle.throughput() * step, "×", earns, name)
    if cost.draft > 0:
        free = f"Drafting takes {time.rho_d:.0%} of a round, verifying {time.rho_v:.0%}."
        yield Line("With drafting free", 1, oracle.throughput(1) * step, "×", free, name)
    flat = oracle.at_plain_price(with_other=True) * step
    what = "What a flat cost curve would bring."
    yield Line("Verifying at the price of a plain step", 0, flat, "×", what, name)


def _axes(found: Calibration) -> Iterator[Line]:
    """The width, context, mode and batch axes of the price of a verify pass."""
    curve = found.curves[1]
    wide = next((w for w in curve.widths if w >= 4), curve.widths[-1])
    for width in [w for w in curve.widths if w > 1]:
        yield _relative(f"A pass of {width} rows", found.relative(width), "one request")
    for context in [c for c in curve.contexts if c != found.base]:
        price = found.relative(wide, context)
        yield _relative(f"A pass of {wide} rows behind {context} tokens", price, "one request")
    for batch in sorted(found.curves)[1:]:
        price = found.relative(wide, batch=batch)
        many = f"{batch} requests, each with {wide} rows"
        yield _relative(f"A pass of {wide} rows for each of {batch} requests", price, many)
    for mode, curves in found.other_modes.items():
        price = curves[1].relative(wide, found.base)
        slower = curves[1].seconds(1, found.base) / found.seconds(1)
        note = f"one request; a one-row pass takes {slower:.2f} times as long as in {found.mode}"
        yield _relative(f"A pass of {wide} rows in mode {mode}", price, note)
    flat = [w for a, w in pairwise(curve.widths) if found.relative(w) <= 1.2 and w > a]
    if flat:
        meaning = "The widest measured pass that costs at most 1.2 one-row passes."
        yield Line("Rows that are nearly free", None, flat[-1], "rows", meaning, AXES, digits=0)


def _relative(question: str, price: float, note: str) -> Line:
    return Line(question, None, price, "×", f"One-row passes it costs; {note}.", AXES)
