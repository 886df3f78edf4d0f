"""A calibration on the terminal: prices, break-evens, what they mean, and the check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from breakeven.cost.breakeven import alpha_for, expected_committed
from breakeven.cost.calibration import Calibration
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.check import Checked, summary


def break_even_table(found: Calibration) -> Table:
    """One line per drafter and K: its price and the acceptance it needs."""
    table = Table(
        box=None,
        min_width=76,
        padding=(0, 1, 0, 0),
        caption="Prices in plain steps. Needs: the break-even, tokens per round (the verifier's "
        "own included) at which it is as fast as plain decoding; below 1 it pays whatever is "
        "accepted. Rate: the acceptance of each draft, given those before, that gives so many.",
        caption_justify="left",
    )
    table.add_column("drafter", no_wrap=True)
    for name in ("K", "needs", "rate", "draft", "verify", "rest"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in found.drafters:
        for k in found.draft_lengths(name):
            cost = found.round_cost(name, k)
            needs, rate = f"{cost.break_even:.2f}", rate_needed(found, name, k)
            parts = (f"{part:.2f}" for part in (cost.draft, cost.verify, cost.other))
            table.add_row(name, str(k), needs, rate, *parts)
    return table


def heading(found: Calibration) -> str:
    """What was calibrated, and its plain step."""
    return (
        f"{found.verifier['name']}, {found.mode}, {found.threads} threads: a plain step takes "
        f"{1e3 * found.step_seconds:.1f} ms behind {found.base} tokens"
    )


def rate_needed(found: Calibration, drafter: str, k: int) -> str:
    """The constant acceptance of each guess that reaches the break-even; ``any``, or ``never``.

    Below 1 any will do: the round costs less than a plain step, and yields at least one token.
    """
    need = found.round_cost(drafter, k).break_even
    if need < 1:
        return "any"
    free = k + 1 - found.verify_rows(drafter, k)
    guesses, of_guesses = k - free, need - free
    if of_guesses > guesses + 1:
        return "never"
    return f"{alpha_for(max(1.0, of_guesses), guesses):.2f}" if guesses else "–"


def speed_at(found: Calibration, drafter: str, k: int, asked: Acceptance) -> float:
    """Speed over plain decoding of long answers with the acceptance asked for."""
    free = k + 1 - found.verify_rows(drafter, k)
    made = expected_committed(asked.survival(k, free))
    return made / found.round_cost(drafter, k).break_even


def answer(found: Calibration, asked: Acceptance) -> str:
    """Which drafter would be the fastest with the acceptance asked for, and which would lose."""
    speeds = {
        name: max((speed_at(found, name, k, asked), k) for k in found.draft_lengths(name))
        for name in found.drafters
    }
    rates = ", ".join(f"{rate:g}" for rate in asked.rates)
    best = max(speeds, key=speeds.__getitem__)
    speed, k = speeds[best]
    losing = [name for name, (own, _) in speeds.items() if own < 1]
    first = f"With acceptance {rates} nothing here would pay"
    if speed >= 1:
        first = (
            f"With acceptance {rates} {best}, K = {k}, makes long answers {speed:.2f} times as fast"
        )
        first += f"; {', '.join(losing)} would lose at any K" if losing else "; every drafter pays"
    return f"{first}."


def sentences(found: Calibration, asked: Acceptance | None = None) -> Iterator[str]:
    """What the prices mean: for the acceptance asked for, the wide pass, other modes, batches."""
    if asked and found.drafters:
        yield answer(found, asked)
    wide = min(4, max(found.curves[1].widths))
    yield (
        f"A pass of {wide} rows costs {found.relative(wide):.2f} one-row passes here; with free "
        f"drafts a round of {wide} rows needs more than "
        f"{found.seconds(wide) / found.step() + found.outside(None, wide - 1) / found.step():.2f} "
        "tokens."
    )
    for mode, curves in found.other_modes.items():
        one, many = (curves[1].seconds(rows, found.base) for rows in (1, wide))
        yield (
            f"In mode {mode} a one-row pass takes {one / found.seconds(1):.2f} times as long, and "
            f"{wide} rows cost {many / one:.2f} one-row passes."
        )
    for batch in sorted(found.curves)[1:]:
        price = found.relative(min(wide, max(found.curves[batch].widths)), batch=batch)
        yield f"With {batch} requests together {wide} rows each cost {price:.2f} one-row passes."
    for warning in found.warnings:
        yield f"doubt: {warning}"


def check_table(checked: Sequence[Checked]) -> Table:
    """Predicted beside measured, with the line that says how good it is."""
    table = Table(
        title="Prediction against real decoding with scripted drafts (speed over plain decoding)",
        title_justify="left",
        box=None,
        min_width=90,
        padding=(0, 1, 0, 0),
        caption=f"{summary(checked)}; nothing: drafts that cost nothing",
        caption_justify="left",
    )
    table.add_column("configuration", no_wrap=True)
    for name in ("predicted", "measured", "error", "AL asked", "AL made"):
        table.add_column(name, justify="right", no_wrap=True)
    for c in checked:
        lengths = (f"{c.committed:.2f}", f"{c.measured_committed:.2f}")
        speeds = (f"{c.predicted:.3f}", f"{c.measured:.3f}", f"{100 * c.error:+.1f} %")
        table.add_row(c.config, *speeds, *lengths)
    return table
