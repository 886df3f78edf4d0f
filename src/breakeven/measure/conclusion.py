"""From a run's records to its tables, profiles, audit and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.cost.curve import CostCurve
from breakeven.measure.acceptance import Acceptance, acceptance_table
from breakeven.measure.audit import Audit
from breakeven.measure.configuration import PLAIN
from breakeven.measure.description import Plan
from breakeven.measure.inspection import inspect_records
from breakeven.measure.performance import (
    Performance,
    in_the_middle,
    joint_ratios,
    middle,
    performance_table,
)
from breakeven.measure.profiles import speculation_profile
from breakeven.measure.records import Record
from breakeven.measure.results import write_csv, write_json
from breakeven.measure.trial import Decoding
from breakeven.measure.verdict import Verdict, decide
from breakeven.measure.wording import Scene
from breakeven.verifier.load import Loaded


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything a benchmark run found; the same is in the files of ``out``.

    ``told`` are those of its doubts that were printed while it ran.
    """

    out: Path
    description: Mapping[str, Any]
    records: Sequence[Record]
    acceptance: Sequence[Acceptance]
    performance: Sequence[Performance]
    curve: CostCurve
    audits: Sequence[Audit]
    verdict: Verdict
    told: tuple[str, ...] = ()


def conclude(
    loaded: Loaded,
    plan: Plan,
    records: Sequence[Record],
    curve: CostCurve,
    description: Mapping[str, Any],
    out: Path,
    *,
    audit: bool = True,
) -> BenchResult:
    """Compute and write everything that follows from the records."""
    configs = [c.name for c in plan.configurations]
    kept = {
        config: in_the_middle(middle(r for r in records if r.config == config).values())
        for config in configs
    }
    acceptance = acceptance_table([r for own in kept.values() for r in own], configs)
    performance = performance_table([records], [PLAIN, *configs], seed=plan.seed)
    audits: Sequence[Audit] = ()
    if audit:
        decoding = Decoding(loaded.verifier, loaded.eos, plan.max_new_tokens)
        audits = inspect_records(decoding, plan.prompts, records, configs)
    verdict = decide(
        performance,
        audits,
        Scene.of(description),
        description["warnings"],
        joint_ratios([records], configs, seed=plan.seed),
    )
    longest = max(c.k for c in plan.configurations)
    lengths = {c.name: c.k for c in plan.configurations}
    write_csv(out / "acceptance.csv", [_padded(a, lengths[a.config], longest) for a in acceptance])
    write_csv(out / "performance.csv", [p.row() for p in performance])
    if audit:
        write_json(out / "audit.json", [a.row(loaded.tokenizer) for a in audits])
    write_json(out / "verdict.json", verdict.row())
    for c in plan.configurations:
        profile = speculation_profile(
            c,
            [a for a in acceptance if a.config == c.name],
            kept[c.name],
            description,
        )
        write_json(out / "profiles" / c.name / "speculation_profile.json", profile)
    return BenchResult(out, description, records, acceptance, performance, curve, audits, verdict)


def _padded(acceptance: Acceptance, k: int, longest: int) -> dict[str, Any]:
    """A row with the columns of the longest draft, empty beyond its own."""
    row, kinds = acceptance.row(k), ("survival_", "drafted_")
    columns = [f"{kind}{i}" for kind in kinds for i in range(1, longest + 1)]
    counts = {name: value for name, value in row.items() if not name.startswith(kinds)}
    return counts | {name: row.get(name, float("nan")) for name in columns}
