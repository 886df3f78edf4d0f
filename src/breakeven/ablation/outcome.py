"""What one variant was worth: every number of its row in the table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from breakeven.ablation.places import Places
from breakeven.ablation.plan import Variant
from breakeven.ablation.trials import Trials
from breakeven.cost.breakeven import RoundCost
from breakeven.errors import DataError
from breakeven.measure.acceptance import ALL, Acceptance
from breakeven.measure.differences import Totals
from breakeven.measure.performance import plain_step, round_cost
from breakeven.measure.records import Record
from breakeven.measure.statistics import Estimate, paired_interval
from breakeven.train.journal import METRICS_FILE, entries
from breakeven.train.provenance import read_provenance
from breakeven.train.run import TRAINING_FOLDER


@dataclass(frozen=True, slots=True)
class TeacherForced:
    """The validation of the kept weights, mean over seeds; NaN for a variant without its own."""

    accuracy: float = math.nan
    acceptance_length: float = math.nan


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row. Totals are over all seeds, with one entry per prompt; intervals are over prompts.

    ``acceptance_length`` is committed tokens / rounds, ``speed`` is it over ``cost.break_even``.
    """

    variant: Variant
    acceptance: Acceptance
    totals: Totals
    acceptance_length: Estimate
    by_seed: Mapping[int, float]
    cost: RoundCost
    speed: Estimate
    teacher_forced: TeacherForced

    @property
    def survival(self) -> tuple[float, ...]:
        """s_1 .. s_K: the share of all rounds whose first k drafts were all accepted."""
        return self.acceptance.survival(self.variant.k or 0)

    def row(self) -> dict[str, Any]:
        """The entry in ``ablation.json``."""
        return {
            "acceptance_length": estimate_row(self.acceptance_length),
            "acceptance_length_by_seed": dict(self.by_seed),
            "survival": list(self.survival),
            "acceptance_rate": self.acceptance.acceptance_rate,
            "rounds": self.acceptance.rounds,
            "drafted": self.acceptance.drafted,
            "accepted": self.acceptance.accepted,
            "committed": self.acceptance.committed,
            "accuracy": self.teacher_forced.accuracy,
            "simulated_acceptance_length": self.teacher_forced.acceptance_length,
            "c_d": self.cost.draft,
            "c_v": self.cost.verify,
            "c_s": self.cost.other,
            "speed": estimate_row(self.speed),
        }


def estimate_row(estimate: Estimate) -> dict[str, float]:
    """A value with its interval, for JSON."""
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def played(trials: Iterable[Mapping[int, Trials]]) -> list[str]:
    """The prompts whose every answer took a round (has a second token), of all variants.

    Raises :class:`DataError` when there is none.
    """
    everything = [by_id for by_seed in trials for by_id in by_seed.values()]
    ids = [
        id for id in everything[0] if all(r.rounds > 0 for by_id in everything for r in by_id[id])
    ]
    if not ids:
        raise DataError(
            "no prompt is answered with two tokens or more; raise decode.max_new_tokens, or "
            "decode.prompts for other prompts"
        )
    return ids


def outcome_of(
    variant: Variant,
    trials: Mapping[int, Trials],
    ids: Sequence[str],
    teacher_forced: TeacherForced,
    *,
    seed: int = 0,
) -> Outcome:
    """Every number of a variant from its trials by seed, on the prompts ``ids``."""
    chosen = [[by_id[id] for by_id in trials.values()] for id in ids]
    plain = [record for group in chosen for record, _ in group]
    own = [record for group in chosen for _, record in group]
    totals = _totals([[record for _, record in group] for group in chosen])
    length = paired_interval(totals.parts, totals.wholes, seed=seed)
    cost = round_cost(own, plain_step(plain))
    assert cost is not None, "rounds were played"
    ratio = paired_interval(
        np.array([sum(p.decode_s for p, _ in group) for group in chosen]),
        np.array([sum(_as_long(p, r) for p, r in group) for group in chosen]),
        seed=seed,
    )
    return Outcome(
        variant=variant,
        acceptance=Acceptance.of(variant.name, ALL, own),
        totals=totals,
        acceptance_length=length,
        by_seed={s: _totals([[t[id][1]] for id in ids]).ratio for s, t in trials.items()},
        cost=cost,
        speed=Estimate(cost.speed(length.value), ratio.low, ratio.high),
        teacher_forced=teacher_forced,
    )


def teacher_forced(places: Places, variant: Variant) -> TeacherForced:
    """What validation said of the weights that were kept; nothing for one decoded differently."""
    if not variant.trained:
        return TeacherForced()
    found = []
    for seed in variant.recipes:
        folder = places.run(variant.name, seed)
        kept = read_provenance(folder)["kept_step"]
        logged = entries(folder / TRAINING_FOLDER / METRICS_FILE)
        found += [e for e in logged if e["split"] == "validation" and e["step"] == kept]
    return TeacherForced(
        accuracy=fmean(e["accuracy"] for e in found),
        acceptance_length=fmean(e["simulated_acceptance_length"] for e in found),
    )


def _totals(groups: Sequence[Sequence[Record]]) -> Totals:
    """Committed tokens and rounds; one entry per group of records."""
    return Totals(
        np.array([float(sum(r.committed for r in group)) for group in groups]),
        np.array([float(sum(r.rounds for r in group)) for group in groups]),
    )


def _as_long(plain: Record, own: Record) -> float:
    """Decode seconds for as many tokens as plain decoding gave; they differ after a near-tie."""
    return own.decode_s * (plain.tokens - 1) / (own.tokens - 1)
