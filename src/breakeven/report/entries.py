"""The configurations a page shows, with the name, colour and shape that each keeps throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.report.records import ALL, Acceptance, Performance
from breakeven.report.run import Run

SHAPES = ("circle", "square", "triangle", "diamond", "down", "plus", "hexagon")
COLOURS = 7
"""How many series colours ``style.css`` defines (``--c0`` …)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A colour and a shape: told apart by either."""

    colour: int
    shape: str

    @classmethod
    def number(cls, i: int) -> Mark:
        """The i-th of 49 different marks."""
        return cls(i % COLOURS, SHAPES[(i + i // COLOURS) % len(SHAPES)])


@dataclass(frozen=True)
class Entry:
    """One speculative configuration of one run."""

    name: str
    config: str
    run: Run
    mark: Mark

    @property
    def speed(self) -> Performance | None:
        """Over all categories."""
        return self.run.speed_of(self.config)

    @property
    def acceptance(self) -> Acceptance | None:
        """Over all categories."""
        return self.run.acceptance_of(self.config)

    @property
    def by_category(self) -> list[Performance]:
        """One row for each category."""
        rows = self.run.performance
        return [row for row in rows if row.config == self.config and row.category != ALL]

    @property
    def k(self) -> int:
        """Drafted tokens of a round, K."""
        return self.run.draft_length(self.config)

    @property
    def layout(self) -> dict[str, int]:
        """Options that the drafter chose by itself, or was given in their place."""
        return self.run.layout(self.config)

    @property
    def verify_rows(self) -> int:
        """Rows of the widest verify pass: K + 1, one less with a free first token, and masks."""
        own = self.layout
        chain = min(self.k, own.get("drafts", self.k)) + 1 - self.run.free_first(self.config)
        return chain + min(chain, own.get("groups", 0)) * own.get("masks", 0)

    @property
    def mean_rows(self) -> float:
        """Rows of a verify pass on average: fewer than at most where less than K was drafted.

        The widest where that was not counted, and for masks aboard, whose rows always run.
        """
        found = self.acceptance
        if found is None or found.width is None or self.layout:
            return self.verify_rows
        some = found.reached[0] if found.reached else 1.0  # of rounds, with a first token
        return max(1.0, found.width - some * self.run.free_first(self.config))


def entries_of(runs: Sequence[Run]) -> list[Entry]:
    """All configurations of all runs; a name that two runs share is followed by its run's."""
    pairs = [(run, config) for run in runs for config in run.configs]
    shared = Counter(config for _, config in pairs)
    return [
        Entry(
            config if shared[config] == 1 else f"{config} · {run.label}",
            config,
            run,
            Mark.number(i),
        )
        for i, (run, config) in enumerate(pairs)
    ]
