"""The result of a run from its stages' records: ``paper.json``, ``paper.md``, ``paper.html``."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import breakeven
from breakeven.cost.oracle import PAPER
from breakeven.files import write_whole
from breakeven.measure.results import finite, write_json
from breakeven.paper.figure import LEGEND, Point, figure1, points
from breakeven.paper.folder import Folder
from breakeven.paper.reading import sentences
from breakeven.paper.table import Table
from breakeven.paper.tables import tables
from breakeven.report.charts.frame import NARROW, WIDE
from breakeven.report.page import Figure, environment

JSON_FILE, TEXT_FILE, PAGE_FILE = "paper.json", "paper.md", "paper.html"
UNSEEN = (
    "The bodies of the paper's Tables 1–3 were not available: its figures are those of its prose, "
    "and a dash stands where the prose has none."
)


@dataclass(frozen=True, slots=True)
class Account:
    """Everything that is shown; ``results`` are the stages' own."""

    paper: str
    verifier: str
    command: str
    reading: list[str]
    notes: list[str]
    points: list[Point]
    tables: list[Table]
    seconds: dict[str, float]
    results: Mapping[str, Any]

    def row(self) -> dict[str, Any]:
        """The content of ``paper.json``."""
        return {**asdict(self), "breakeven": breakeven.__version__, "published": asdict(PAPER)}


def account(folder: Folder, names: Sequence[str], verifier: str, command: str) -> Account:
    """Read every finished stage of ``names`` and draw the conclusions."""
    records = {name: done for name in names if (done := folder.read(name)) is not None}
    results = {name: d.result for name, d in records.items() if d.result is not None}
    missing = [name for name in names if name not in results]
    notes = [UNSEEN]
    if missing:
        notes.append(f"Not run: {', '.join(missing)}.")
    for name in ("bench", "ablations"):
        notes += [f"{name}: {text}" for text in results.get(name, {}).get("warnings", ())]
    return Account(
        paper=PAPER.source,
        verifier=verifier,
        command=command,
        reading=sentences(results),
        notes=notes,
        points=points(results),
        tables=tables(verifier, results),
        seconds={name: records[name].seconds for name in results},
        results=results,
    )


def write_account(found: Account, out: Path) -> list[Path]:
    """Write the three files."""
    content = finite(found.row())
    write_json(out / JSON_FILE, content)
    write_whole(out / TEXT_FILE, markdown(found))
    write_whole(out / PAGE_FILE, page(found, json.dumps(content)))
    return [out / name for name in (JSON_FILE, TEXT_FILE, PAGE_FILE)]


def markdown(found: Account) -> str:
    """The reading and the tables as Markdown."""
    lines = [f"# The paper's protocol on {found.verifier}", "", f"{found.paper}.", ""]
    lines += [f"- {sentence}" for sentence in found.reading]
    for table in found.tables:
        lines += ["", f"## {table.title}", "", *grid(table), "", table.caption]
    lines += ["", "## Notes", "", *(f"- {note}" for note in found.notes)]
    return "\n".join([*lines, "", f"Made by `{found.command}`.", ""])


def grid(table: Table) -> list[str]:
    """The lines of a Markdown table."""
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def page(found: Account, data: str) -> str:
    """The page as HTML text; ``data`` is put inside for download."""
    wide, narrow = (figure1(found.points, width) for width in (WIDE, NARROW))
    figure = Figure("figure1-chart", "charts/throughput.svg.j2", wide, narrow)
    coded = base64.b64encode(data.encode()).decode()
    return (
        environment()
        .get_template("paper.html.j2")
        .render(
            account=found,
            figure=figure,
            legend=LEGEND,
            data=f"data:application/json;base64,{coded}",
            version=breakeven.__version__,
        )
    )
