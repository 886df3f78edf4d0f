"""Read a run folder, whatever is left of it.

A missing or broken file costs its figures and leaves a :class:`Note` that says so; a
``requests.jsonl`` that was cut off is read up to the cut. Only a folder without any result is an
error.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from breakeven.cost.curve import CostCurve
from breakeven.counting import counted
from breakeven.errors import DataError
from breakeven.report.records import (
    ALL,
    PLAIN,
    Acceptance,
    Audit,
    Performance,
    RequestRow,
    Row,
    Verdict,
)

CONSEQUENCES = {
    "configuration.json": "model, prompts, machine and command are not known",
    "performance.csv": "no speeds, prices and ratios",
    "acceptance.csv": "no survival by position",
    "cost_curve.csv": "no cost curve and no best draft length",
    "audit.json": "nothing says whether the output is the verifier's own; run `breakeven audit`",
    "verdict.json": "the verdict below is read off performance.csv",
    "requests.jsonl": "the single requests cannot be downloaded or compared",
}
"""What the page lacks without a file."""

MOST_ROWS = 10_000
"""What is larger is no part of a layout of rows."""

R = TypeVar("R", bound=Row)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a file of the run that the reader should know."""

    file: str
    text: str
    missing: bool = False


@dataclass
class Run:
    """What could be read of one run folder."""

    path: Path
    label: str
    configuration: dict[str, Any]
    performance: list[Performance] = field(default_factory=list)
    acceptance: list[Acceptance] = field(default_factory=list)
    curve: CostCurve | None = None
    audits: list[Audit] = field(default_factory=list)
    verdict: Verdict | None = None
    requests: list[RequestRow] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def command(self) -> str:
        """The command that made the run."""
        return str(self.configuration.get("command") or "breakeven bench (command not recorded)")

    @property
    def machine(self) -> dict[str, Any]:
        """The machine block of the configuration."""
        return self._block("machine")

    @property
    def verifier(self) -> dict[str, Any]:
        """The verifier block of the configuration."""
        return self._block("verifier")

    @property
    def plain(self) -> Performance | None:
        """Plain decoding over all categories."""
        return self.speed_of(PLAIN)

    @property
    def configs(self) -> list[str]:
        """Names of the speculative configurations, in the order they were run."""
        stated = (entry.get("name") for entry in self._listed)
        listed = [name for name in stated if isinstance(name, str) and name]
        seen = [p.config for p in self.performance] + [a.config for a in self.acceptance]
        return [name for name in dict.fromkeys([*listed, *seen]) if name != PLAIN]

    def settings(self, config: str) -> dict[str, Any]:
        """The entry of ``configurations`` for one name, empty when there is none."""
        return next((entry for entry in self._listed if entry.get("name") == config), {})

    def layout(self, config: str) -> dict[str, int]:
        """How the drafter of a configuration laid out its rows, in its own options' names."""
        stated = self.settings(config).get("layout")
        found = stated if isinstance(stated, dict) else {}
        inside = range(MOST_ROWS)
        return {str(n): v for n, v in found.items() if type(v) is int and v in inside}

    def draft_length(self, config: str) -> int:
        """K: as stated, else as many positions as have a survival."""
        stated = self.settings(config).get("k")
        if isinstance(stated, int):
            return stated
        acceptance = self.acceptance_of(config)
        return len(acceptance.survival) if acceptance else 0

    def free_first(self, config: str) -> bool:
        """Whether the first draft is the verifier's own decision (ALGORITHMS 1.9).

        Without the field ``free`` it is told by survival: always accepted first, and then not.
        """
        stated = self.settings(config).get("free")
        if stated is not None:
            return bool(stated)
        acceptance = self.acceptance_of(config)
        first = acceptance.survival[:2] if acceptance else ()
        return len(first) == 2 and first[0] > 0.999 > first[1]

    @property
    def cut(self) -> bool:
        """Whether ``requests.jsonl`` was read only in part."""
        return any(note.file == "requests.jsonl" for note in self.notes)

    def _block(self, name: str) -> dict[str, Any]:
        found = self.configuration.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def _listed(self) -> list[dict[str, Any]]:
        listed = self.configuration.get("configurations")
        entries = listed if isinstance(listed, list) else []
        return [entry for entry in entries if isinstance(entry, dict)]

    def speed_of(self, config: str, category: str = ALL) -> Performance | None:
        """The row of performance.csv for a configuration and category."""
        rows = (p for p in self.performance if (p.config, p.category) == (config, category))
        return next(rows, None)

    def acceptance_of(self, config: str, category: str = ALL) -> Acceptance | None:
        """The row of acceptance.csv for a configuration and category."""
        rows = (a for a in self.acceptance if (a.config, a.category) == (config, category))
        return next(rows, None)


def load_run(path: Path) -> Run:
    """Read the folder at ``path``.

    Raises :class:`DataError` when it is no run folder or holds nothing that was measured.
    """
    if not path.is_dir():
        raise DataError(f"{path}: no such folder; give the folder `breakeven bench` wrote")
    run = Run(path, path.resolve().name, {})
    run.configuration = _part(run, "configuration.json", _configuration, {})
    run.performance = _part(run, "performance.csv", lambda file: _table(run, file, Performance), [])
    run.acceptance = _part(run, "acceptance.csv", lambda file: _table(run, file, Acceptance), [])
    run.curve = _part(run, "cost_curve.csv", CostCurve.read, None)
    run.audits = _part(run, "audit.json", _audits, [])
    run.verdict = _part(run, "verdict.json", lambda f: Verdict.model_validate(_json(f)), None)
    run.requests = _part(run, "requests.jsonl", lambda file: list(_requests(run, file)), [])
    if not (run.performance or run.acceptance or run.audits or run.curve):
        raise DataError(
            f"{path}: no result file that can be read (performance.csv, acceptance.csv,"
            " cost_curve.csv, audit.json); give the folder `breakeven bench` wrote"
        )
    return run


def _configuration(file: Path) -> dict[str, Any]:
    found = _json(file)
    if not isinstance(found, dict):
        raise ValueError(f"a JSON object is expected, not a {type(found).__name__}")
    return found


def _part(run: Run, name: str, read: Callable[[Path], T], default: T) -> T:
    """Read one file, or note why not."""
    file = run.path / name
    if not file.exists():
        run.notes.append(Note(name, f"missing: {CONSEQUENCES[name]}", missing=True))
        return default
    try:
        return read(file)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    except (DataError, OSError, ValueError, csv.Error) as error:
        reason = str(error)
    run.notes.append(Note(name, f"not readable ({reason}): {CONSEQUENCES[name]}", missing=True))
    return default


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _audits(file: Path) -> list[Audit]:
    found = _json(file)
    return [
        Audit.model_validate(entry) for entry in (found if isinstance(found, list) else [found])
    ]


def _table(run: Run, file: Path, kind: type[R]) -> list[R]:
    """The rows of a CSV file; rows that do not fit are counted, not fatal."""
    rows, bad = [], 0
    with file.open(newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text, restkey="rest"):
            try:
                rows.append(kind.model_validate(row))
            except ValidationError:
                bad += 1
    if bad:
        run.notes.append(Note(file.name, f"left out: {counted(bad, 'row')} that could not be read"))
    return rows


def _requests(run: Run, file: Path) -> Iterator[RequestRow]:
    """The lines of ``requests.jsonl`` up to the cut, if there is one."""
    lines = file.read_bytes().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = RequestRow.model_validate_json(line)
        except ValidationError:
            at_end = number == len(lines)
            what = "cut off" if at_end else "broken"
            text = f"{what} at line {number}; read before it: {counted(number - 1, 'request')}"
            run.notes.append(Note(file.name, text))
            return
        yield row
