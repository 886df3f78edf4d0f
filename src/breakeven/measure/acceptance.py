"""How many drafted tokens the verifier accepts: per configuration, category and position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.measure.configuration import PLAIN
from breakeven.measure.records import Record

ALL = "all"
"""The category that holds every prompt."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts over the rounds of one configuration and category.

    >>> a = Acceptance("x-k2", "all", rounds=4, drafted=8, accepted=4, committed=8,
    ...                accepted_histogram=(1, 2, 1))
    >>> a.acceptance_length, a.acceptance_rate, a.survival(2)
    (2.0, 0.5, (0.75, 0.25))
    >>> from dataclasses import replace
    >>> replace(a, drafted_histogram=(1, 0, 3)).reached(2)
    (0.75, 0.75)
    """

    config: str
    category: str
    rounds: int
    drafted: int
    accepted: int
    committed: int
    accepted_histogram: tuple[int, ...]
    drafted_histogram: tuple[int, ...] = ()

    @classmethod
    def of(cls, config: str, category: str, records: Sequence[Record]) -> Acceptance:
        """Add up the records of one configuration."""
        return cls(
            config=config,
            category=category,
            rounds=sum(r.rounds for r in records),
            drafted=sum(r.drafted for r in records),
            accepted=sum(r.accepted for r in records),
            committed=sum(r.committed for r in records),
            accepted_histogram=add_up(r.accepted_histogram for r in records),
            drafted_histogram=add_up(r.drafted_histogram for r in records),
        )

    @property
    def acceptance_length(self) -> float:
        """Committed tokens per verify pass, the verifier's own included, after truncation."""
        return self.committed / self.rounds if self.rounds else float("nan")

    @property
    def acceptance_rate(self) -> float:
        """Accepted drafts per drafted token, in 0–1; NaN when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else float("nan")

    def survival(self, k: int) -> tuple[float, ...]:
        """``s_1 .. s_k``: the share of all rounds whose first drafts were all accepted."""
        return self._shares(self.accepted_histogram, k)

    def reached(self, k: int) -> tuple[float, ...]:
        """The shares of all rounds that drafted at least 1 .. k tokens; NaN where not counted.

        What was not drafted was not rejected: ``survival / reached`` tells the two apart.
        """
        if not self.drafted_histogram:
            return (float("nan"),) * k
        return self._shares(self.drafted_histogram, k)

    def _shares(self, histogram: Sequence[int], k: int) -> tuple[float, ...]:
        counts = [sum(histogram[i:]) for i in range(1, k + 1)]
        return tuple(count / self.rounds if self.rounds else float("nan") for count in counts)

    def row(self, k: int) -> dict[str, Any]:
        """The line of ``acceptance.csv``."""
        return {
            "config": self.config,
            "category": self.category,
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "committed": self.committed,
            "acceptance_length": self.acceptance_length,
            "acceptance_rate": self.acceptance_rate,
            **{f"survival_{i}": s for i, s in enumerate(self.survival(k), start=1)},
            **{f"drafted_{i}": s for i, s in enumerate(self.reached(k), start=1)},
        }


def add_up(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The sum of histograms of unequal length.

    >>> add_up([(1, 2), (1,), ()])
    (2, 2)
    """
    total: list[int] = []
    for counts in histograms:
        total.extend([0] * (len(counts) - len(total)))
        for value, count in enumerate(counts):
            total[value] += count
    return tuple(total)


def by_category(records: Iterable[Record]) -> Iterator[tuple[str, list[Record]]]:
    """All records under :data:`ALL`, then those of each category by name."""
    records = list(records)
    yield ALL, records
    for category in sorted({r.category for r in records}):
        yield category, [r for r in records if r.category == category]


def acceptance_table(records: Sequence[Record], configs: Iterable[str]) -> list[Acceptance]:
    """Every drafting configuration with every category; plain decoding drafts nothing."""
    return [
        Acceptance.of(config, category, group)
        for config in configs
        if config != PLAIN
        for category, group in by_category(r for r in records if r.config == config)
    ]
