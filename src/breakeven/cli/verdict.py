"""``breakeven verdict``: does it pay? Read from result files, answered in the exit code."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.options import Json

if TYPE_CHECKING:
    from breakeven.measure.judgement import Judgement

Results = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN", help="Folders that `breakeven bench` wrote, or their requests.jsonl."
    ),
]


def verdict(results: Results, as_json: Json = False) -> None:
    """Say whether speculation pays: one sentence, one table, the reasons.

    Everything is computed anew from `requests.jsonl`; a file that was cut off is read up to the
    cut, and the notes say so. Several runs of the same prompts are joined, each row compared with
    plain decoding of its own run. Runs of other prompts, models, modes or machines are not
    compared: the error names the field.

    Exit code: 0 it pays, 1 it does not (or its answers are wrong), 3 undecided, 2 bad input.

    Examples:

        breakeven verdict runs/demo/bench
        breakeven verdict runs/monday runs/tuesday --json
        breakeven verdict runs/bench && echo "switch it on"
    """
    from breakeven.measure.judgement import judge_files
    from breakeven.measure.results import finite

    found = judge_files(results)
    if as_json:
        performance = [asdict(row) for row in found.performance]
        answer = {
            "verdict": found.verdict.row(),
            "performance": performance,
            "notes": list(found.notes),
        }
        print(json.dumps(finite(answer), indent=2, ensure_ascii=False))
    else:
        show(found)
    raise typer.Exit(found.exit_code)


def show(found: Judgement) -> None:
    """The sentence, the table, the reasons."""
    from rich.console import Console

    from breakeven.measure.table import performance_lines

    console = Console()
    console.print(found.verdict.sentence, highlight=False, markup=False, soft_wrap=True)
    console.print(performance_lines(found.performance, found.outputs))
    for reason in found.verdict.reasons:
        console.print(f"  · {reason}", highlight=False, markup=False, soft_wrap=True)
