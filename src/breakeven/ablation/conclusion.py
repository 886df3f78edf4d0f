"""From the trials of an ablation to its result: numbers, sentences, ``ablation.json``, a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import breakeven
from breakeven.ablation.equality import Equality, compare, verdict_line
from breakeven.ablation.findings import Difference, differences, findings
from breakeven.ablation.outcome import Outcome, outcome_of, played, teacher_forced
from breakeven.ablation.places import RESULT_FILE, Places
from breakeven.ablation.plan import Plan
from breakeven.ablation.trials import complete
from breakeven.data.artifact import Artifact
from breakeven.data.contract import FILE as CONTRACT_FILE
from breakeven.errors import DataError
from breakeven.measure.audit import Finding
from breakeven.measure.definitions import DEFINITIONS as OF_BENCH
from breakeven.measure.machine import machine_facts
from breakeven.measure.prompts import Prompt
from breakeven.measure.rescore import Rescorer
from breakeven.measure.results import write_json
from breakeven.train.provenance import file_sha256, read_provenance, source_commit
from breakeven.verifier.load import Loaded

SHARED = (
    "acceptance_length",
    "acceptance_rate",
    "survival_k",
    "plain step",
    "c_d, c_v, c_s",
    "break_even",
)
DEFINITIONS = {
    **{word: OF_BENCH[word] for word in SHARED},
    "intervals": "95 %, studentised bootstrap over prompts, for the weights that were trained; the "
    "seeds stand beside them",
    "difference": "acceptance length minus that of the variant compared with, on the same prompts; "
    "the intervals hold for all differences of the table at once",
    "accuracy": "masked-token accuracy: right predictions / labels, teacher-forced, on validation "
    "rows, for the weights that were kept",
    "simulated_acceptance_length": "tokens per round if a round started at every scored place, "
    "from the same predictions",
    "speed": "acceptance_length / (c_d + c_v + c_s): speed in units of plain decoding's, measured "
    "in the same process, prompt by prompt in turn",
}


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group of the table: its rows in the order of the grid, and what they say together."""

    name: str
    about: str
    outcomes: Sequence[Outcome]
    findings: Sequence[str]


@dataclass(frozen=True, slots=True)
class Result:
    """Everything an ablation found; ``missing`` are the variants not decoded yet."""

    groups: Sequence[GroupResult]
    differences: Mapping[str, Difference]
    equality: Mapping[str, Equality]
    missing: Sequence[str]
    content: Mapping[str, Any]

    @property
    def line(self) -> str:
        """What is said of the outputs."""
        return verdict_line(self.equality)

    @property
    def exit_code(self) -> int:
        """1 when some output is not plain decoding's, else 0."""
        return int(any(e.verdict is Finding.BUG for e in self.equality.values()))


def conclude(
    plan: Plan, places: Places, loaded: Loaded, artifact: Artifact, prompts: Sequence[Prompt]
) -> Result:
    """Compute and write everything that follows from the finished variants, chosen now or before.

    Raises :class:`DataError` when no variant has been decoded.
    """
    seed = plan.grid.decode.seed
    every = {v.name: complete(plan, places, v, prompts) for v in plan.variants.values()}
    trials = {name: found for name, found in every.items() if found is not None}
    if not trials:
        raise DataError(f"{places.out}: no variant has been decoded; run without --only")
    ids = played(trials.values())
    outcomes = {}
    for name, by_seed in trials.items():
        variant = plan.variants[name]
        forced = teacher_forced(places, variant)
        outcomes[name] = outcome_of(variant, by_seed, ids, forced, seed=seed)
    found = differences(outcomes, seed=seed)
    rescorer = Rescorer(loaded.verifier)
    equality = {name: compare(name, t, prompts, rescorer) for name, t in trials.items()}
    groups = _groups(plan, outcomes, found)
    content = {
        **_heading(plan, loaded, artifact, prompts),
        "variants": [_row(o, found, equality, places) for o in outcomes.values()],
        "groups": [
            {"name": g.name, "about": g.about, "findings": list(g.findings)} for g in groups
        ],
    }
    missing = [name for name in plan.variants if name not in trials]
    result = Result(groups, found, equality, missing, content)
    write_json(places.out / RESULT_FILE, content)
    return result


def _groups(
    plan: Plan, outcomes: Mapping[str, Outcome], found: Mapping[str, Difference]
) -> list[GroupResult]:
    """The groups of the grid that have a finished variant."""
    groups = []
    for name, section in plan.grid.groups.items():
        own = [outcomes[variant] for variant in section.variants if variant in outcomes]
        if own:
            groups.append(GroupResult(name, section.about, own, findings(own, found)))
    return groups


def _heading(
    plan: Plan, loaded: Loaded, artifact: Artifact, prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """What was compared, on what, where."""
    return {
        "breakeven": breakeven.__version__,
        "source_commit": source_commit(),
        "verifier": asdict(loaded.identity),
        "artifact_contract_sha256": file_sha256(artifact.path / CONTRACT_FILE),
        "prompts": len(prompts),
        "grid": plan.grid.model_dump(mode="json"),
        "machine": machine_facts(),
        "definitions": DEFINITIONS,
    }


def _row(
    outcome: Outcome,
    found: Mapping[str, Difference],
    equality: Mapping[str, Equality],
    places: Places,
) -> dict[str, Any]:
    """A variant in ``ablation.json``."""
    variant = outcome.variant
    difference = found.get(variant.name)
    papers = [read_provenance(places.run(variant.origin, seed)) for seed in variant.recipes]
    return {
        "name": variant.name,
        "group": variant.group,
        "says": variant.says,
        "drafter": variant.recipe.drafter,
        "of": None if variant.trained else variant.origin,
        "options": dict(variant.options),
        "k": variant.k,
        **outcome.row(),
        "difference": difference.row() if difference else None,
        "output": equality[variant.name].row(),
        "trained": [
            {key: paper[key] for key in ("steps", "kept_step", "tokens_seen", "labels_seen")}
            for paper in papers
        ],
    }
