"""A calibration from beginning to end: passes, rounds, other modes, doubts, the check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import torch

from breakeven.cost.calibration import Calibration, Curves, curves_of, curves_row
from breakeven.cost.levelling import levelled
from breakeven.measure.calibration.check import Checked, Tried, answers_beside, compared, tried
from breakeven.measure.calibration.passes import Cell, measure_passes
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.calibration.rounds import Rounds, measure_rounds
from breakeven.measure.calibration.stages import Row, Stages
from breakeven.measure.doubts import drifted, slow_plain_step, warn
from breakeven.measure.machine import load_1m, machine_facts
from breakeven.measure.neighbours import Neighbours, busy_now, disturbed
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import Loaded

NOWHERE = Stages(None, {})
"""Nothing is stored and nothing found."""


def calibrate(
    loaded: Loaded,
    plan: CalibrationPlan,
    *,
    others: Mapping[str, Callable[[], Verifier]] | None = None,
    command: str = "",
    stages: Stages = NOWHERE,
) -> tuple[Calibration, list[Checked]]:
    """Measure everything of :class:`Calibration`, the doubts included.

    ``others`` load the same weights in other execution modes: for each the cost curve of one
    request behind the base context is measured. A stage that ``stages`` holds is not repeated.
    With an ``acceptance`` in the plan the predictions are checked, too.
    """
    verifier = loaded.verifier
    plan = plan.within(verifier.shape)
    machine = machine_facts()
    warn(busy_now())

    def curves(name: str, load: Callable[[], Verifier], cells: list[Cell], seconds: float) -> Row:
        def measure() -> Row:
            found = measure_passes(load(), cells, seconds, label=name, seed=plan.seed)
            return curves_row(found)

        return _watched(stages, name, {"cells": cells, "seed": plan.seed}, measure)

    passes = curves("passes", lambda: verifier, plan.cells(), plan.seconds("passes"))
    rounds = _watched(stages, "rounds", plan.of_rounds(), lambda: _rounds(verifier, plan))
    cells = [(1, plan.base, width) for width in plan.widths]
    modes = {
        name: curves(f"mode-{name}", load, cells, plan.seconds("modes") / len(others or {}))
        for name, load in (others or {}).items()
    }
    found = Rounds.of(rounds["found"]["rounds"])
    level = levelled(curves_of(passes["found"]), plan.base, found.verify)
    rows = [passes, rounds, *modes.values()]
    made = Calibration(
        machine={**machine, "load_1m_end": load_1m()},
        verifier={
            "name": loaded.identity.name,
            "weights_sha256": loaded.identity.weights_sha256,
        },
        mode=verifier.mode,
        threads=torch.get_num_threads(),
        step_seconds=found.step,
        outside_seconds=found.outside,
        base=plan.base,
        curves=level,
        drafters=found.drafters,
        other_modes={name: curves_of(row["found"]) for name, row in modes.items()},
        dtype=str(verifier.dtype).removeprefix("torch."),
        command=command,
        warnings=_doubts(rows, level, found, plan),
    )
    if plan.acceptance is None:
        return made, []
    decoded = [Tried(**row) for row in rounds["found"]["answers"]]
    return made, compared(made, plan.acceptance, decoded)


def _rounds(verifier: Verifier, plan: CalibrationPlan) -> Row:
    """Rounds priced and, with an acceptance in the plan, answers decoded in turn with them."""
    seconds = plan.seconds("rounds")
    if plan.acceptance is None:
        return {"rounds": measure_rounds(verifier, plan, seconds).row(), "answers": []}
    answers = answers_beside(verifier, plan, plan.acceptance, plan.seconds("answers"))
    found = measure_rounds(verifier, plan, seconds, answers.advance)
    return {"rounds": found.row(), "answers": [asdict(own) for own in tried(answers)]}


def _doubts(
    rows: Sequence[Row], curves: Curves, rounds: Rounds, plan: CalibrationPlan
) -> tuple[str, ...]:
    """What makes the results less sure, each thing once; of a busy machine the worst stage."""
    skipped = [name for name in plan.drafters if name not in rounds.drafters]
    free = [name for name in skipped if name not in rounds.skipped]
    found = (
        disturbed(max(row["others_busy"] for row in rows)),
        slow_plain_step(curves[1]),
        drifted(rounds.plain),
        f"not priced, for want of an untrained form: {', '.join(rounds.skipped)}"
        if rounds.skipped
        else None,
        f"not priced, its first token is free, so give a K above 1: {', '.join(free)}"
        if free
        else None,
    )
    return tuple(doubt for doubt in found if doubt)


def _watched(
    stages: Stages, name: str, wanted: Mapping[str, object], measure: Callable[[], Row]
) -> Row:
    """A stage and how busy others were: ``{"found": …, "others_busy": cores}``."""

    def watch() -> Row:
        neighbours = Neighbours()
        found = measure()
        return {"found": found, "others_busy": neighbours.cores}

    return stages.of(name, wanted, watch)
