"""Which rows each step trains on: a pure function of the seed and the step number.

Nothing is remembered between steps, so a resumed run sees the rows it would have seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from breakeven.data.artifact import Row
from breakeven.errors import TrainingError
from breakeven.train.objective import Objective
from breakeven.train.randomness import generator_of
from breakeven.train.recipe import DataSettings


class Feed:
    """Endless shuffled epochs over rows, cut into steps of ``per_step`` rows.

    >>> feed = Feed(["a", "b", "c"], per_step=2, seed=0)  # type: ignore[list-item]
    >>> sorted(feed.step(0) + feed.step(1)[:1])
    ['a', 'b', 'c']
    >>> feed.step(7) == feed.step(7)
    True
    """

    def __init__(self, rows: Sequence[Row], per_step: int, seed: int) -> None:
        self.rows, self._per_step, self._seed = rows, per_step, seed
        self._epoch, self._order = -1, [0]

    def step(self, number: int) -> list[Row]:
        """The rows of one step, counted from 0."""
        first = number * self._per_step
        return [self._item(i) for i in range(first, first + self._per_step)]

    def _item(self, index: int) -> Row:
        epoch, position = divmod(index, len(self.rows))
        if epoch != self._epoch:
            generator = generator_of(self._seed, epoch)
            self._epoch = epoch
            self._order = torch.randperm(len(self.rows), generator=generator).tolist()
        return self.rows[self._order[position]]


def spread(rows: Sequence[Row], seed: int) -> list[Row]:
    """All rows in an order of which every beginning is a fair sample of the categories.

    Shuffled within each category, then one of each category in turn: an artifact lists its rows
    by id, so its first hundred may all be of one kind.
    """
    order = torch.randperm(len(rows), generator=generator_of(seed, 0)).tolist()
    turns: list[tuple[int, str, Row]] = []
    seen: Counter[str] = Counter()
    for row in (rows[i] for i in order):
        turns.append((seen[row.category], row.category, row))
        seen[row.category] += 1
    return [row for *_, row in sorted(turns, key=lambda turn: turn[:2])]


def usable(
    rows: Sequence[Row], settings: DataSettings, objective: Objective, seed: int
) -> list[Row]:
    """The rows to train on, spread over the categories.

    Raises :class:`TrainingError` with the counts when none is left.
    """
    limit = settings.max_tokens
    short = [r for r in rows if limit is None or _tokens(r) <= limit]
    labelled = [r for r in short if objective.labels(r) > 0]
    if not labelled:
        raise TrainingError(
            f"none of {len(rows)} rows can be trained on: {len(rows) - len(short)} are longer than "
            f"data.max_tokens={limit}, {len(short) - len(labelled)} have too short a continuation "
            "to give a label; raise data.max_tokens or prepare longer continuations"
        )
    return spread(labelled, seed)[: settings.rows]


def by_length(rows: Sequence[Row]) -> list[Row]:
    """Shortest first."""
    return sorted(rows, key=_tokens)


def passes(rows: Sequence[Row], size: int) -> list[list[Row]]:
    """Rows of one step as forward passes of at most ``size``, like lengths together."""
    ordered = by_length(rows)
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _tokens(row: Row) -> int:
    return len(row.prompt_ids) + len(row.continuation_ids)
