"""From records to ratios: who is how fast, beside the targets.

Every ratio is a median of ratios within rounds, so that a machine that changes its pace cancels
out. Rates are new tokens per second of the whole request, its prompt included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from rich.table import Table

from benchmarks.conditions import Target, number
from benchmarks.peers.catalogue import OURS
from benchmarks.peers.race import Record

OURS_PLAIN = f"{OURS} plain"
OTHER_WEIGHTS = ("llama.cpp q4_1",)
"""Entries with other weights: shown, never compared."""

WIDE = 17
"""Rows of the pass that has a target."""


class Standings:
    """Questions to the records of one race."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._costs: dict[tuple[str, int, str], dict[int, float]] = {}
        for record in records:
            cost = record.seconds / (record.tokens or 1)
            key = (record.kind, record.rows, record.entry)
            self._costs.setdefault(key, {})[record.round] = cost

    def entries(self, kind: str, rows: int = 0) -> list[str]:
        """Who was measured, fastest first."""
        found = [entry for k, r, entry in self._costs if (k, r) == (kind, rows)]
        return sorted(found, key=lambda entry: self.cost(kind, entry, rows))

    def widths(self) -> list[int]:
        """Rows of the passes that were measured."""
        return sorted({rows for kind, rows, _ in self._costs if kind == "pass"})

    def cost(self, kind: str, entry: str, rows: int = 0) -> float:
        """Median seconds per token (of a pass: per pass)."""
        return median(self._costs[kind, rows, entry].values())

    def speed(self, kind: str, entry: str, base: str, rows: int = 0) -> float | None:
        """How many times as fast as ``base``; None where they share no round."""
        own = self._costs.get((kind, rows, entry), {})
        other = self._costs.get((kind, rows, base), {})
        ratios = [other[number] / own[number] for number in own if number in other]
        return median(ratios) if ratios else None

    def best(self, kind: str, entries: Iterable[str], rows: int = 0) -> str | None:
        """The fastest of ``entries`` that was measured."""
        allowed = set(entries)
        return next((e for e in self.entries(kind, rows) if e in allowed), None)

    def peers(self, kind: str, rows: int = 0) -> list[str]:
        """The other engines' entries with the same weights."""
        found = self.entries(kind, rows)
        return [e for e in found if not e.startswith(f"{OURS} ") and e not in OTHER_WEIGHTS]

    def targets(self) -> list[Target]:
        """The goals: plain, speculative, a wide pass, a batch."""
        plain = self.best("decode", ("llama.cpp plain", "openvino plain"))
        fastest = self.best("decode", self.peers("decode"))
        ours = [e for e in self.entries("decode") if e.startswith(f"{OURS} ")]
        wide = self.best("pass", self.peers("pass", WIDE), WIDE)
        crowd = self.best("batch", self.peers("batch"))
        fast_wide = self._ratio("pass", OURS_PLAIN, wide, WIDE)
        return [
            Target(f"plain ÷ {plain}", self._ratio("decode", OURS_PLAIN, plain), 0.95),
            Target(
                "plain ÷ transformers plain",
                self._ratio("decode", OURS_PLAIN, "transformers plain"),
                2.5,
            ),
            *(
                Target(f"{o} ÷ {fastest}", self._ratio("decode", o, fastest), 1.25)
                for o in ours
                if o != OURS_PLAIN
            ),
            Target(
                f"seconds of a {WIDE}-row pass ÷ {wide}",
                fast_wide and 1 / fast_wide,
                0.75,
                at_least=False,
            ),
            Target(f"batch ÷ {crowd}", self._ratio("batch", OURS_PLAIN, crowd), 1.2),
        ]

    def _ratio(self, kind: str, entry: str, base: str | None, rows: int = 0) -> float | None:
        return None if base is None else self.speed(kind, entry, base, rows)


def rates(standings: Standings, kind: str, title: str) -> Table:
    """Tokens per second of every entry, and times breakeven's plain decoding."""
    table = Table("engine", title=title)
    for column in ("tokens/s", f"÷ {OURS_PLAIN}"):
        table.add_column(column, justify="right")
    for entry in standings.entries(kind):
        ratio = standings.speed(kind, entry, OURS_PLAIN)
        note = " (other weights)" if entry in OTHER_WEIGHTS else ""
        table.add_row(entry + note, f"{1 / standings.cost(kind, entry):.1f}", number(ratio))
    return table


def passes(standings: Standings) -> Table:
    """Milliseconds of a pass by rows, an engine a line."""
    table = Table("pass of … rows, ms", title="passes with the arg-max of every row")
    widths = standings.widths()
    for width in widths:
        table.add_column(str(width), justify="right")
    names = {entry for width in widths for entry in standings.entries("pass", width)}
    for name in sorted(names):
        cells = [
            f"{standings.cost('pass', name, w) * 1e3:.1f}"
            if name in standings.entries("pass", w)
            else "–"
            for w in widths
        ]
        table.add_row(name.removesuffix(" plain"), *cells)
    return table
