"""A calibration from beginning to end: passes, other modes, rounds, doubts."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from breakeven.cost.calibration import Calibration
from breakeven.measure.calibration.passes import measure_passes
from breakeven.measure.calibration.plan import OTHER_SHARE, PASSES_SHARE, CalibrationPlan
from breakeven.measure.calibration.rounds import measure_rounds
from breakeven.measure.doubts import drifted, slow_plain_step, warn
from breakeven.measure.machine import load_1m, machine_facts
from breakeven.measure.neighbours import Neighbours, busy_now
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import Loaded


def calibrate(
    loaded: Loaded,
    plan: CalibrationPlan,
    *,
    others: Mapping[str, Verifier] | None = None,
    command: str = "",
) -> Calibration:
    """Measure everything of :class:`Calibration`; doubts are printed and kept.

    ``others`` are the same weights in other execution modes: for each the cost curve of one
    request behind the base context is measured.
    """
    verifier = loaded.verifier
    plan = plan.within(verifier.shape)
    machine = machine_facts()
    doubts = warn(busy_now())
    neighbours = Neighbours()
    curves = measure_passes(
        verifier, plan.cells(), plan.seconds(PASSES_SHARE), label="passes", seed=plan.seed
    )
    rounds = measure_rounds(verifier, plan)
    other_modes = {}
    for mode, other in (others or {}).items():
        cells = [(1, plan.base, width) for width in plan.widths]
        seconds = plan.seconds(OTHER_SHARE)
        other_modes[mode] = measure_passes(other, cells, seconds, label=mode, seed=plan.seed)
    doubts += warn(
        neighbours.warning(),
        slow_plain_step(curves[1]),
        drifted(rounds.plain),
        *(f"{name} has no untrained form: its price is not known" for name in rounds.skipped),
    )
    return Calibration(
        machine={**machine, "load_1m_end": load_1m()},
        verifier={
            "name": loaded.identity.name,
            "weights_sha256": loaded.identity.weights_sha256,
        },
        mode=verifier.mode,
        threads=torch.get_num_threads(),
        step_seconds=rounds.step,
        outside_seconds=rounds.outside,
        base=plan.base,
        curves=curves,
        drafters=rounds.drafters,
        other_modes=other_modes,
        dtype=str(verifier.dtype).removeprefix("torch."),
        command=command,
        warnings=tuple(doubts),
    )
