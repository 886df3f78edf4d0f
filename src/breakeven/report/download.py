"""The data inside the page: a run's files as ``data:`` links."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from breakeven.report.run import Run

FILES = {
    "performance.csv": "text/csv",
    "acceptance.csv": "text/csv",
    "cost_curve.csv": "text/csv",
    "audit.json": "application/json",
    "verdict.json": "application/json",
    "configuration.json": "application/json",
    "recipe.yaml": "text/yaml",
}
MOST = 400_000
"""Larger files (bytes) stay in the run folder, so that the page stays small."""


@dataclass(frozen=True, slots=True)
class Download:
    """A link, or (``href`` empty) the place where a file too large for the page lies."""

    name: str
    href: str
    bytes: int


def downloads(run: Run) -> list[Download]:
    """Every file of a run, and the requests gzipped without their token ids."""
    found = [
        _link(name, kind, (run.path / name).read_bytes())
        for name, kind in FILES.items()
        if (run.path / name).is_file()
    ]
    if run.requests:
        found.append(_requests(run.path / "requests.jsonl", len(run.requests)))
    return found


def _requests(path: Path, lines: int) -> Download:
    rows = [json.loads(line) for line in path.read_bytes().splitlines()[:lines]]
    for row in rows:
        row.pop("token_ids", None)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return _link("requests.jsonl.gz", "application/gzip", gzip.compress(text, mtime=0))


def _link(name: str, kind: str, content: bytes) -> Download:
    if len(content) > MOST:
        return Download(name, "", len(content))
    return Download(name, f"data:{kind};base64,{base64.b64encode(content).decode()}", len(content))
