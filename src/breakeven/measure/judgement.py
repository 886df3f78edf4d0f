"""A verdict read again from result files, whatever wrote them and however much of them is left.

``requests.jsonl`` is the source: tables are computed from its lines anew, so that a run that was
cut off is judged on what it measured. Several runs of the same prompts are joined.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from breakeven.counting import counted
from breakeven.errors import DataError
from breakeven.measure.acceptance import ALL
from breakeven.measure.answers import Answer
from breakeven.measure.audit import Finding
from breakeven.measure.configuration import PLAIN
from breakeven.measure.control import Control
from breakeven.measure.description import FILE, RECORDS, at, brief, read_description
from breakeven.measure.divergence import Divergence, Kind
from breakeven.measure.performance import Performance, joint_ratios, performance_table
from breakeven.measure.records import Key, Record
from breakeven.measure.verdict import Verdict, decide
from breakeven.measure.wording import Scene

SAME = (
    "verifier.name", "verifier.weights_sha256", "split", "prompts", "prompts_sha256",
    "max_new_tokens", "mode", "dtype", "machine.cpu", "machine.gpu", "machine.threads",
)  # fmt: skip
"""Fields in which runs judged together must agree, as far as both state them."""

MOST_NOTES = 3

NEEDED = {"verifier.name": str, "machine": dict, "prompts": int}
"""Fields of ``configuration.json`` without which a run cannot be named."""

EXIT_CODES = {
    Answer.PAYS: 0, Answer.DOES_NOT_PAY: 1, Answer.NOT_USABLE: 1, Answer.UNDECIDED: 3,
}  # fmt: skip
"""What ``breakeven verdict`` returns; 2 is bad input."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An audit as ``audit.json`` keeps it; ``outputs`` only counts the answers."""

    config: str
    verdict: Finding
    outputs: range
    differing: int
    tokens: int
    divergences: tuple[Divergence, ...]
    control: Control | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Recorded:
        """From an entry of the file; raises what a malformed one raises."""
        control = row.get("control")
        return cls(
            config=str(row["config"]),
            verdict=Finding(row["verdict"]),
            outputs=range(int(row["requests"])),
            differing=int(row["differing"]),
            tokens=int(row["tokens"]),
            divergences=tuple(
                Divergence(str(d["id"]), int(d["position"]), int(d["expected"]), int(d["got"]),
                           None if d["gap"] is None else float(d["gap"]), Kind(d["class"]))
                for d in row["divergences"]
            ),
            control=control and Control(
                int(control["width"]), int(control["requests"]), int(control["tokens"]),
                float(control["noise"]), float(control["limit"]), (),
            ),
        )  # fmt: skip

    @property
    def bugs(self) -> tuple[Divergence, ...]:
        """The divergences that rounding does not explain."""
        return tuple(d for d in self.divergences if d.kind is Kind.BUG)


@dataclass(frozen=True, slots=True)
class Found:
    """What could be read of one run's folder; ``notes`` say what could not."""

    path: Path
    description: Mapping[str, Any]
    records: tuple[Record, ...]
    audits: tuple[Recorded, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, the rows of its table with each one's own interval, the notes."""

    verdict: Verdict
    performance: tuple[Performance, ...]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 pays, 1 does not (or must not be used), 3 undecided."""
        return EXIT_CODES[self.verdict.verdict]


def judge_files(paths: Sequence[Path]) -> Judgement:
    """Read the runs, check that they measured the same, and decide.

    Raises :class:`DataError` for a folder that is no run, for runs that cannot be compared
    (naming the field), and when nothing was measured.
    """
    runs = [read(path) for path in dict.fromkeys(p.resolve() for p in paths)]
    check_same(runs)
    measured = paired(runs)
    records = [record for own in measured for record in own]
    configs = in_order(runs, records)
    if not configs:
        raise DataError(
            f"{paths[0]}: no prompt was decoded both plainly and with a drafter;"
            " `breakeven bench --resume` goes on measuring"
        )
    performance = performance_table(measured, [PLAIN, *configs])
    audits = worst(a for run in runs for a in run.audits)
    notes = tuple(note for run in runs for note in run.notes)
    verdict = decide(
        performance,
        list(audits.values()),
        replace(Scene.of(runs[0].description), prompts=len({r.id for r in records})),
        [*doubts_of(runs), *notes],
        joint_ratios(measured, configs),
    )
    outputs = {c: str(audits[c].verdict) if c in audits else "not audited" for c in configs}
    rows = tuple(row for row in performance if row.category == ALL)
    return Judgement(verdict, rows, outputs, notes)


def doubts_of(runs: Sequence[Found]) -> list[str]:
    """What the runs' files doubt, each thing once; where not all say it, of which run."""
    said: dict[str, list[Found]] = {}
    for run in runs:
        for text in dict.fromkeys(map(str, listed(run.description.get("warnings")))):
            said.setdefault(text, []).append(run)
    last = [run.path.name for run in runs]
    names = {run.path: name if last.count(name) == 1 else str(run.path)
             for run, name in zip(runs, last, strict=True)}  # fmt: skip
    return [
        text if len(own) == len(runs) else f"{', '.join(names[run.path] for run in own)}: {text}"
        for text, own in said.items()
    ]


def in_order(runs: Sequence[Found], records: Sequence[Record]) -> list[str]:
    """The drafted configurations as the runs' descriptions list them, as in the bench's table.

    Records stand in the order measured, which is shuffled.
    """
    entries = (e for run in runs for e in listed(run.description.get("configurations")))
    names = [str(entry.get("name")) for entry in entries if isinstance(entry, Mapping)]
    there = {r.config for r in records} - {PLAIN}
    return [c for c in dict.fromkeys([*names, *sorted(there)]) if c in there]


def read(path: Path) -> Found:
    """One run, up to the cut if ``requests.jsonl`` was cut off or broken."""
    folder = path.parent if path.name == RECORDS else path
    if not (folder / RECORDS).is_file():
        raise DataError(f"{folder}: no {RECORDS}; give the folder `breakeven bench` wrote")
    description = read_description(folder)
    for name, kind in NEEDED.items():
        found = at(description, name)
        if not isinstance(found, kind):
            fault = "is missing" if found is None else f"= {brief(found)}: not what a run writes"
            raise DataError(f"{folder / FILE}: field '{name}' {fault}; nothing can be compared")
    records, note = whole_records(folder / RECORDS)
    audits, doubt = _audits(folder / "audit.json")
    return Found(folder, description, records, audits, note + doubt)


def whole_records(path: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """The lines before the first that is no record, and a note if there is one."""
    lines = path.read_bytes().splitlines()
    records: dict[Key, Record] = {}
    notes = []
    for number, line in enumerate(lines, start=1):
        try:
            record = Record.from_line(line.decode())
        except ValueError:
            what = "cut off" if number == len(lines) else "broken"
            notes += [
                f"{path} is {what} at line {number}; only the {counted(number - 1, 'record')} "
                "before it count"
            ]
            break
        if records.setdefault(record.key, record) is not record:
            notes += [f"{path}: line {number} repeats an earlier one ({record.id}) and is left out"]
    return tuple(records.values()), tuple(notes[:MOST_NOTES])


def listed(value: object) -> list[object]:
    """A list as it is, anything else as none."""
    return value if isinstance(value, list) else []


def check_same(runs: Sequence[Found]) -> None:
    """Raise :class:`DataError` naming the first field of :data:`SAME` in which two runs differ."""
    first = runs[0]
    for other in runs[1:]:
        for field in SAME:
            ours, theirs = at(first.description, field), at(other.description, field)
            if ours is not None and theirs is not None and ours != theirs:
                raise DataError(
                    f"{first.path} and {other.path} cannot be compared: {field} differs"
                    f" ({brief(ours)} and {brief(theirs)}); judge them one by one"
                )


def paired(runs: Sequence[Found]) -> list[list[Record]]:
    """Run by run the records that have plain decoding of the same prompt beside them.

    A prompt that some configuration lacks, as after a cut, is left out for all.
    """
    beside = []
    for run in runs:
        plain = {r.id for r in run.records if r.config == PLAIN}
        drafted = {r.id for r in run.records if r.config != PLAIN}
        beside.append([r for r in run.records if r.id in plain & drafted])
    by_config: dict[str, set[str]] = {}
    for record in chain.from_iterable(beside):
        by_config.setdefault(record.config, set()).add(record.id)
    shared = set.intersection(*by_config.values()) if by_config else set()
    return [[record for record in own if record.id in shared] for own in beside]


def worst(audits: Iterable[Recorded]) -> dict[str, Recorded]:
    """One audit for each configuration: the last, but a bug that any run found stays one."""
    found: dict[str, Recorded] = {}
    for audit in audits:
        known = found.get(audit.config)
        if known is None or known.verdict is not Finding.BUG:
            found[audit.config] = audit
    return found


def _audits(path: Path) -> tuple[tuple[Recorded, ...], tuple[str, ...]]:
    """The audits of a run and a note when they cannot be read."""
    if not path.is_file():
        return (), (f"{path}: missing: whether the answers are the same was not checked",)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Recorded.of(entry) for entry in entries), ()
    except (OSError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as error:
        return (), (f"{path}: not readable ({type(error).__name__}: {error})",)
