"""How fast each configuration is beside plain decoding, and where a round's time goes.

For each prompt the repeat with the middle decode time counts, all its parts together; of an even
number of repeats the two in the middle, both alike, so that nobody gets the faster one. Then the
columns of one row fit each other: ``ratio = acceptance_length / break_even``, exactly so when the
outputs are as long as plain decoding's.

A configuration is compared with plain decoding of the same run only. Where several runs measured
it, each gives its own pairs, and a prompt's pairs are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from breakeven.cost.breakeven import RoundCost
from breakeven.measure.acceptance import ALL, Acceptance
from breakeven.measure.configuration import PLAIN
from breakeven.measure.records import Record
from breakeven.measure.statistics import (
    Estimate,
    Floats,
    joint_intervals,
    mean_of_ratios,
    paired_interval,
    ratio_of_totals,
    spread,
)

Middle = tuple[Record, Record]
"""The two repeats in the middle; of an odd number the one in the middle, twice."""


@dataclass(frozen=True, slots=True)
class Performance:
    """One line of ``performance.csv``; the words are those of ``definitions.py``.

    ``spread`` is the standard deviation that one prompt adds to the logarithm of the ratio.
    """

    config: str
    category: str
    tokens_per_s: float
    ratio: float
    ratio_low: float
    ratio_high: float
    end_to_end_ratio: float
    c_d: float
    c_v: float
    c_s: float
    break_even: float
    acceptance_length: float
    mean_ratio: float
    spread: float
    prompts: int

    def row(self) -> dict[str, Any]:
        """The line of the file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Pair:
    """What counts of one prompt in one run: a configuration's repeats and plain decoding's."""

    own: Middle
    plain: Middle

    @property
    def id(self) -> str:
        """The prompt."""
        return self.own[0].id

    @property
    def category(self) -> str:
        """The prompt's category."""
        return self.own[0].category

    @property
    def comparable(self) -> bool:
        """Whether there is decoding to compare: an answer of one token has none."""
        return all(record.tokens > 1 for record in (*self.own, *self.plain))

    def seconds(self, *, prefill: bool = False) -> tuple[float, float]:
        """Plain decoding's seconds and the candidate's, at plain decoding's output length.

        Lengths differ only where a near-tie made the outputs part; then time per token is compared.
        """
        steps = sum(r.tokens - 1 for r in self.plain)
        scale = steps / sum(r.tokens - 1 for r in self.own)
        baseline = sum(r.decode_s for r in self.plain)
        candidate = sum(r.decode_s for r in self.own) * scale
        if prefill:
            baseline += sum(r.prefill_s for r in self.plain)
            candidate += sum(r.prefill_s for r in self.own)
        return baseline / 2, candidate / 2


def middle(records: Iterable[Record]) -> dict[str, Middle]:
    """Of each prompt's repeats the one with the middle decode time, or the two in the middle."""
    repeats: dict[str, list[Record]] = {}
    for record in records:
        repeats.setdefault(record.id, []).append(record)
    ordered = {id: sorted(group, key=lambda r: r.decode_s) for id, group in repeats.items()}
    return {id: (g[(len(g) - 1) // 2], g[len(g) // 2]) for id, g in ordered.items()}


def pairs(runs: Iterable[Sequence[Record]], config: str) -> list[Pair]:
    """A configuration beside plain decoding of the same prompt, run by run."""
    found = []
    for records in runs:
        plain = middle(r for r in records if r.config == PLAIN)
        own = middle(r for r in records if r.config == config)
        found += [Pair(own[id], plain[id]) for id in plain if id in own]
    return found


def in_the_middle(middles: Iterable[Middle]) -> list[Record]:
    """The records that tables are made of; each once where every number of repeats is odd."""
    middles = list(middles)
    lower = [low for low, _ in middles]
    if all(low is high for low, high in middles):
        return lower
    return lower + [high for _, high in middles]


def performance_table(
    runs: Sequence[Sequence[Record]], configs: Iterable[str], *, seed: int = 0
) -> list[Performance]:
    """Plain decoding and every configuration, with every category.

    ``runs`` hold the records of each run. The intervals of the categories, over all
    configurations, hold at once; those over all prompts are each configuration's own (see
    :func:`joint_ratios`).
    """
    configs = list(configs)
    drafting = sum(config != PLAIN for config in configs)
    many = max(1, drafting * len({pair.category for pair in pairs(runs, PLAIN)}))
    table = []
    for config in configs:
        for category, group in _by_category(pairs(runs, config)):
            compared = 1 if category == ALL else many
            table.append(compare(config, category, group, seed, compared))
    return table


def joint_ratios(
    runs: Sequence[Sequence[Record]], configs: Sequence[str], *, seed: int = 0
) -> dict[str, Estimate]:
    """The ratio of each drafting configuration over all prompts; the intervals hold all at once.

    Empty when no prompt has an answer of two tokens or more from everybody.
    """
    answers = [[p for p in pairs(runs, config) if p.comparable] for config in configs]
    shared = [p.id for p in pairs(runs, PLAIN)]
    for own in answers:
        there = {p.id for p in own}
        shared = [id for id in shared if id in there]
    if not shared:
        return {}
    place = {id: i for i, id in enumerate(shared)}
    times = [
        _seconds(sorted((p for p in own if p.id in place), key=lambda p: place[p.id]))
        for own in answers
    ]
    return dict(zip(configs, joint_intervals(times, seed=seed), strict=True))


def compare(
    config: str, category: str, group: Sequence[Pair], seed: int = 0, compared: int = 1
) -> Performance:
    """One configuration on some prompts beside plain decoding on the same ones.

    ``compared``: so many such intervals are to hold at once.
    """
    nan = float("nan")
    own = in_the_middle(pair.own for pair in group)
    kept = [pair for pair in group if pair.comparable]
    times = _seconds(kept)
    decode = paired_interval(*times, seed=seed, compared=compared) if kept else Estimate(nan)
    cost = round_cost(own, plain_step(chain.from_iterable(pair.plain for pair in group)))
    steps = sum(r.tokens - 1 for r in own)
    return Performance(
        config=config,
        category=category,
        tokens_per_s=steps / sum(r.decode_s for r in own),
        ratio=decode.value,
        ratio_low=decode.low,
        ratio_high=decode.high,
        end_to_end_ratio=ratio_of_totals(*_seconds(kept, prefill=True)) if kept else nan,
        c_d=cost.draft if cost else nan,
        c_v=cost.verify if cost else nan,
        c_s=cost.other if cost else nan,
        break_even=cost.break_even if cost else nan,
        acceptance_length=Acceptance.of(config, category, own).acceptance_length,
        mean_ratio=mean_of_ratios(*times) if kept else nan,
        spread=spread(*times) if kept else nan,
        prompts=len({pair.id for pair in kept}),
    )


def plain_step(plain: Iterable[Record]) -> float:
    """Seconds of one plain decoding step: decode time per token after the first."""
    plain = list(plain)
    steps = sum(r.tokens - 1 for r in plain)
    return sum(r.decode_s for r in plain) / steps if steps else float("nan")


def round_cost(group: Sequence[Record], step: float) -> RoundCost | None:
    """What a round costs in plain steps; None when there was no round or no plain step."""
    rounds = sum(r.rounds for r in group)
    if not rounds or not step > 0:
        return None
    unit = rounds * step
    return RoundCost(
        draft=sum(r.draft_s for r in group) / unit,
        verify=sum(r.verify_s for r in group) / unit,
        other=sum(r.other_s for r in group) / unit,
    )


def _by_category(group: Sequence[Pair]) -> Iterator[tuple[str, Sequence[Pair]]]:
    """All pairs under :data:`ALL`, then those of each category by name."""
    yield ALL, group
    for category in sorted({pair.category for pair in group}):
        yield category, [pair for pair in group if pair.category == category]


def _seconds(group: Iterable[Pair], *, prefill: bool = False) -> tuple[Floats, Floats]:
    """Seconds of plain decoding and of the candidate by prompt, in order of appearance."""
    totals: dict[str, Floats] = {}
    for pair in group:
        seconds = np.array(pair.seconds(prefill=prefill))
        totals[pair.id] = totals.get(pair.id, np.zeros(2)) + seconds
    baseline, candidate = np.array(list(totals.values())).reshape(-1, 2).T
    return baseline, candidate
