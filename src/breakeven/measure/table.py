"""A benchmark's result as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.markup import escape
from rich.table import Table

from breakeven.measure.acceptance import ALL
from breakeven.measure.conclusion import BenchResult
from breakeven.measure.configuration import PLAIN
from breakeven.measure.performance import Performance

UNKNOWN = "–"


def bench_table(result: BenchResult) -> Table:
    """One line per configuration over all categories; definitions stand below it."""
    audits = {audit.config: str(audit.verdict) for audit in result.audits}
    return performance_lines(result.performance, audits)


def performance_lines(rows: Iterable[Performance], outputs: Mapping[str, str]) -> Table:
    """The same from the rows and what the audit says of each configuration's output."""
    table = Table(
        box=None,
        padding=(0, 1, 0, 0),
        caption="Ratio: speed against plain decoding (ar), with each row's own 95 % interval over "
        "prompts (a verdict on several holds for the best, with wider ones). AL: tokens per round, "
        "the verifier's own included. It pays when AL is above what it needs, the break-even: "
        "draft + verify + rest, in plain steps; below 1 it pays whatever is accepted.",
        caption_justify="left",
    )
    table.add_column("configuration", overflow="fold")  # the one that gives way
    for name in ("tok/s", "ratio", "95 %", "AL", "needs", "draft", "verify", "rest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("output", no_wrap=True)
    for row in rows:
        if row.category == ALL:
            table.add_row(*_cells(row, outputs.get(row.config, UNKNOWN)))
    return table


def _cells(row: Performance, output: str) -> list[str]:
    interval = f"{_number(row.ratio_low)}–{_number(row.ratio_high)}"
    return [
        escape(row.config),
        _number(row.tokens_per_s, 1),
        _number(row.ratio),
        UNKNOWN if row.config == PLAIN else interval,
        _number(row.acceptance_length),
        _number(row.break_even),
        _number(row.c_d),
        _number(row.c_v),
        _number(row.c_s),
        UNKNOWN if row.config == PLAIN else output,
    ]


def _number(value: float, digits: int = 2) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:.{digits}f}"
