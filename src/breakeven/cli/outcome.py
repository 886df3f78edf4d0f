"""What a benchmark says on the terminal: the forecast before it, the table and verdict after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from breakeven.counting import counted
from breakeven.measure.doubts import DOUBT, few_prompts

if TYPE_CHECKING:
    from breakeven.measure.conclusion import BenchResult
    from breakeven.measure.forecast import Forecast


def show_forecast(found: Forecast, as_json: bool) -> None:
    """Print what would run."""
    if as_json:
        print(json.dumps(found.row(), indent=2))
        return
    for line in forecast_lines(found):
        print(line)


def forecast_lines(found: Forecast) -> list[str]:
    """A forecast for people."""
    minutes = found.seconds / 60
    return [
        f"would run {', '.join(found.configurations)}",
        f"on {counted(found.prompts, 'prompt')}, {counted(found.repeats, 'time')} each: "
        f"{counted(found.trials, 'answer')}",
        f"in at most about {minutes:.0f} min" if minutes >= 2 else f"in {found.seconds:.0f} s",
        f"which shows differences of {100 * found.detectable:.0f} % or more (minimum detectable "
        "effect: 80 % power at 95 % confidence)",
        *([f"{DOUBT}{doubt}"] if (doubt := few_prompts(found.prompts)) else []),
    ]


def show_result(result: BenchResult, as_json: bool) -> None:
    """Print the table and the verdict, or both as JSON."""
    if as_json:
        from breakeven.measure.results import finite

        rows = [row.row() for row in result.performance]
        verdict = result.verdict.row()
        found = {"out": str(result.out), "verdict": verdict, "performance": rows}
        print(json.dumps(finite(found), indent=2))
        return
    from rich.console import Console

    from breakeven.measure.table import bench_table

    console = Console()
    console.print(bench_table(result))
    told = {f"{DOUBT}{text}" for text in result.told}
    lines = [
        result.verdict.sentence,
        *(f"  · {reason}" for reason in result.verdict.reasons if reason not in told),
        f"Files: {result.out}; draw them with: breakeven report {result.out}",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
