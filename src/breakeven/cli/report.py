"""``breakeven report``: draw report.html from result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from breakeven.cli.options import Force, Json

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders that `breakeven bench` wrote."),
]
Page = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="The page; by default RUN/report.html."),
]


def report(runs: Runs, out: Page = None, force: Force = False, as_json: Json = False) -> None:
    """Draw report.html from result files.

    One self-contained page: it opens from a file without any network, on a desktop or a phone,
    light or dark. The verdict stands on top; below it speed against acceptance length, what a
    round costs and earns, ratios with 95 % intervals, survival by position, the cost curve, the
    exactness audit, the machine, and the data to download.

    Several runs are compared when they measured the same model on the same prompts in the same
    mode; otherwise the error names what differs. Missing or cut files cost their figures only,
    and the page says so.

    Examples:

        breakeven report runs/demo
        breakeven report runs/monday runs/tuesday --out compare.html --force
    """
    from breakeven.report.page import write_report

    written = write_report(runs, out or runs[0] / "report.html", force=force)
    if as_json:
        answer = {"report": str(written.path), "bytes": written.bytes}
        print(json.dumps(answer | {"verdicts": written.verdicts, "notes": written.notes}))
        return
    for verdict in written.verdicts:
        print(verdict)
    for note in written.notes:
        print(f"note: {note}")
    print(f"written: {written.path} ({written.bytes / 1000:.0f} kB)")
