"""How fast each configuration is beside plain decoding, and where a round's time goes.

For each prompt the repeat with the middle decode time counts, all its parts together. Then the
columns of one row fit each other: ``ratio = acceptance_length / break_even``, exactly so when the
outputs are as long as plain decoding's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from breakeven.cost.breakeven import RoundCost
from breakeven.measure.acceptance import ALL, Acceptance, by_category
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


def middle(records: Iterable[Record]) -> dict[str, Record]:
    """Of each prompt's repeats the one with the middle decode time (the lower of two)."""
    repeats: dict[str, list[Record]] = {}
    for record in records:
        repeats.setdefault(record.id, []).append(record)
    return {
        id: sorted(group, key=lambda r: r.decode_s)[(len(group) - 1) // 2]
        for id, group in repeats.items()
    }


def counted(records: Sequence[Record], config: str) -> list[Record]:
    """The records of a configuration that its tables are made of: each prompt's middle repeat."""
    return list(middle(r for r in records if r.config == config).values())


def performance_table(
    records: Sequence[Record], configs: Iterable[str], *, seed: int = 0
) -> list[Performance]:
    """Plain decoding and every configuration, with every category.

    The intervals of the categories, over all configurations, hold at once; those over all
    prompts are each configuration's own (see :func:`joint_ratios`).
    """
    plain = middle(r for r in records if r.config == PLAIN)
    configs = list(configs)
    drafting = sum(config != PLAIN for config in configs)
    many = max(1, drafting * len({record.category for record in plain.values()}))
    table = []
    for config in configs:
        own = middle(r for r in records if r.config == config)
        for category, group in by_category(own.values()):
            compared = 1 if category == ALL else many
            table.append(compare(config, category, group, plain, seed, compared))
    return table


def joint_ratios(
    records: Sequence[Record], configs: Sequence[str], *, seed: int = 0
) -> dict[str, Estimate]:
    """The ratio of each drafting configuration over all prompts; the intervals hold all at once.

    Empty when no prompt has an answer of two tokens or more from everybody.
    """
    plain = middle(r for r in records if r.config == PLAIN)
    answers = [middle(r for r in records if r.config == config) for config in configs]
    shared = [id for id in plain if all(_comparable(own[id], plain[id]) for own in answers)]
    if not shared:
        return {}
    times = [_seconds([(own[id], plain[id]) for id in shared]) for own in answers]
    return dict(zip(configs, joint_intervals(times, seed=seed), strict=True))


def compare(
    config: str,
    category: str,
    group: Sequence[Record],
    plain: dict[str, Record],
    seed: int = 0,
    compared: int = 1,
) -> Performance:
    """One configuration on some prompts beside plain decoding on the same ones.

    ``compared``: so many such intervals are to hold at once.
    """
    nan = float("nan")
    partners = [plain[record.id] for record in group]
    pairs = [(r, p) for r, p in zip(group, partners, strict=True) if _comparable(r, p)]
    times = _seconds(pairs)
    decode = paired_interval(*times, seed=seed, compared=compared) if pairs else Estimate(nan)
    step = plain_step(partners)
    cost = round_cost(group, step)
    steps = sum(r.tokens - 1 for r in group)
    return Performance(
        config=config,
        category=category,
        tokens_per_s=steps / sum(r.decode_s for r in group),
        ratio=decode.value,
        ratio_low=decode.low,
        ratio_high=decode.high,
        end_to_end_ratio=ratio_of_totals(*_seconds(pairs, prefill=True)) if pairs else nan,
        c_d=cost.draft if cost else nan,
        c_v=cost.verify if cost else nan,
        c_s=cost.other if cost else nan,
        break_even=cost.break_even if cost else nan,
        acceptance_length=Acceptance.of(config, category, group).acceptance_length,
        mean_ratio=mean_of_ratios(*times) if pairs else nan,
        spread=spread(*times) if pairs else nan,
        prompts=len(pairs),
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


def _comparable(record: Record, plain: Record) -> bool:
    """An answer of one token has no decoding to compare."""
    return record.tokens > 1 and plain.tokens > 1


def _seconds(
    pairs: Sequence[tuple[Record, Record]], *, prefill: bool = False
) -> tuple[Floats, Floats]:
    """Plain decoding's seconds and the candidate's, scaled to plain decoding's output length.

    Lengths differ only where a near-tie made the outputs part; then time per token is compared.
    """
    scale = np.array([(p.tokens - 1) / (r.tokens - 1) for r, p in pairs])
    baseline = np.array([p.decode_s for _, p in pairs])
    candidate = np.array([r.decode_s for r, _ in pairs]) * scale
    if prefill:
        baseline = baseline + np.array([p.prefill_s for _, p in pairs])
        candidate = candidate + np.array([r.prefill_s for r, _ in pairs])
    return baseline, candidate
