"""Why ratios by category are so unsure, and how many prompts would make them sure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from breakeven.counting import counted
from breakeven.measure.statistics import prompts_within
from breakeven.measure.wording import WILD
from breakeven.report.entries import Entry

USEFUL = 0.1
"""An interval of this share on each side of its ratio can be worked with."""


def category_widths(entries: Sequence[Entry]) -> str | None:
    """Prompts behind each interval, that they hold jointly, which are left out, what would do.

    None without ratios by category, or where the files do not say of how many prompts.
    """
    every = [row for e in entries for row in e.by_category if row.ratio is not None]
    counts = [row.prompts for row in every if row.prompts]
    if not counts:
        return None
    least, most = min(counts), max(counts)
    each = counted(most, "prompt") if least == most else f"{least} to {most} prompts"
    text = f"Behind each ratio here {'is' if most == 1 else 'are'} {each}"
    rows = [row for row in every if row.ratio_low is not None]
    if not rows:
        return f"{text}: too few for an interval."
    if len(rows) > 1:
        text += f", and the 95 % intervals hold for all {len(rows)} at once: so they are wide."
    else:
        text += "."
    if empty := sum(row.says_nothing for row in rows):
        text += (
            f" Left out: {counted(empty, 'interval')} whose ends are more than {WILD:g} times "
            "apart, which say nothing."
        )
    spreads = [row.spread for e in entries if (row := e.speed) and row.spread]
    needed = prompts_within(median(spreads), USEFUL, len(rows)) if spreads else 0
    if needed > least:
        close = f"±{100 * USEFUL:.0f} % of the ratio"
        text += f" About {needed} prompts a category would bring them to {close}."
    return text
