"""A calibration from beginning to end: passes, other modes, rounds, doubts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from breakeven.cost.calibration import Calibration
from breakeven.cost.curve import CostCurve
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
        curves=levelled(curves, plan.base, rounds.plain_pass),
        drafters=rounds.drafters,
        other_modes=other_modes,
        dtype=str(verifier.dtype).removeprefix("torch."),
        command=command,
        warnings=tuple(doubts),
    )


def levelled(curves: Mapping[int, CostCurve], base: int, plain: float) -> dict[int, CostCurve]:
    """The curves in the clock of the rounds, in which a one-row pass took ``plain`` seconds.

    Passes and rounds are timed one after the other, and the machine may have changed in between;
    what a wide pass costs beside a one-row pass was measured side by side and stays.
    """
    factor = plain / curves[1].seconds(1, base)
    return {
        batch: CostCurve(
            tuple(
                replace(p, seconds=factor * p.seconds, low=factor * p.low, high=factor * p.high)
                for p in curve.points
            )
        )
        for batch, curve in curves.items()
    }
