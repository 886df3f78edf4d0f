"""From records to the figures of a table: mean ± sd over repeats, intervals, acceptance, prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from breakeven.measure.acceptance import ALL, Acceptance
from breakeven.measure.configuration import PLAIN
from breakeven.measure.performance import compare, in_the_middle, middle, pairs, plain_step
from breakeven.measure.records import Record
from breakeven.measure.statistics import TAIL, student_t

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Repeated:
    """A speed over repeated runs: mean, standard deviation, 95 % interval of the mean (t).

    With one run there is neither deviation nor interval (NaN).

    >>> r = Repeated.of([10.0, 11.0, 12.0])
    >>> r.mean, r.sd, round(r.low, 2), round(r.high, 2)
    (11.0, 1.0, 8.52, 13.48)
    """

    mean: float
    sd: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Repeated:
        """From one value a run."""
        middle, runs = mean(values), len(values)
        if runs < 2:
            return cls(middle, NAN, NAN, NAN, runs)
        sd = stdev(values)
        reach = student_t(TAIL, runs - 1) * sd / math.sqrt(runs)
        return cls(middle, sd, middle - reach, middle + reach, runs)


@dataclass(frozen=True, slots=True)
class Figures:
    """One configuration. Times in seconds, a round's parts as means over its rounds.

    ``token_rate`` is accepted drafts / drafted tokens, ``block_rate`` the share of rounds with a
    whole block whose every draft was accepted, ``committed`` tokens committed / verify passes.
    """

    config: str
    speed: Repeated
    ratio: float
    ratio_low: float
    ratio_high: float
    committed: float
    token_rate: float
    block_rate: float
    rounds: int
    draft_s: float
    verify_s: float
    other_s: float
    step_s: float
    prompts: int

    def row(self) -> dict[str, Any]:
        """For a stage's result."""
        return asdict(self)


def figures(records: Sequence[Record], configs: Iterable[str], *, seed: int = 0) -> list[Figures]:
    """Plain decoding and every configuration; ratios are paired by prompt."""
    step = plain_step(in_the_middle(middle(r for r in records if r.config == PLAIN).values()))
    table = []
    for config in dict.fromkeys((PLAIN, *configs)):
        own = [r for r in records if r.config == config]
        kept = in_the_middle(middle(own).values())
        speed = compare(config, ALL, pairs([records], config), seed)
        acceptance = Acceptance.of(config, ALL, kept)
        rounds = acceptance.rounds or 1
        table.append(
            Figures(
                config=config,
                speed=Repeated.of(by_repeat(own)),
                ratio=speed.ratio,
                ratio_low=speed.ratio_low,
                ratio_high=speed.ratio_high,
                committed=acceptance.acceptance_length,
                token_rate=acceptance.acceptance_rate,
                block_rate=block_rate(kept),
                rounds=acceptance.rounds,
                draft_s=sum(r.draft_s for r in kept) / rounds,
                verify_s=sum(r.verify_s for r in kept) / rounds,
                other_s=sum(r.other_s for r in kept) / rounds,
                step_s=step,
                prompts=len({r.id for r in kept}),
            )
        )
    return table


def by_repeat(records: Iterable[Record]) -> list[float]:
    """Tokens per second of each repeat: tokens after the first / decode time, over its prompts."""
    runs: dict[int, list[Record]] = {}
    for record in records:
        runs.setdefault(record.repeat, []).append(record)
    return [
        sum(r.tokens - 1 for r in run) / sum(r.decode_s for r in run)
        for _, run in sorted(runs.items())
    ]


def block_rate(records: Sequence[Record]) -> float:
    """Share of the rounds with the most drafts in which all of them were accepted.

    Rounds that the end of an answer shortened do not count; NaN when nothing was drafted.
    """
    most = max((len(r.drafted_histogram) - 1 for r in records), default=0)
    if most < 1:
        return NAN
    whole = sum(r.drafted_histogram[most] for r in records if len(r.drafted_histogram) > most)
    right = sum(r.accepted_histogram[most] for r in records if len(r.accepted_histogram) > most)
    return right / whole
