"""What a benchmark run would take, and how small a difference it could show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.measure.cost_curve import ROUNDS, WARM_ROUNDS, WIDTHS
from breakeven.measure.description import Plan
from breakeven.measure.statistics import minimum_detectable_effect
from breakeven.measure.trial import Decoding, Method, warm_up

ASSUMED_SPREAD = 0.15
"""Between prompts, of the logarithm of the ratio, as seen with n-gram and block drafters."""
CURVE_PASS = 1.5
"""Plain steps that a pass of the cost curve takes on average."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """``seconds`` is an upper estimate: answers may end before their limit.

    ``detectable`` is the smallest relative gain or loss that the number of prompts can show.
    """

    configurations: tuple[str, ...]
    prompts: int
    repeats: int
    trials: int
    seconds: float
    detectable: float

    def row(self) -> dict[str, Any]:
        """For machines."""
        return {
            "configurations": list(self.configurations),
            "prompts": self.prompts,
            "repeats": self.repeats,
            "trials": self.trials,
            "seconds": self.seconds,
            "minimum_detectable_effect": self.detectable,
        }


def forecast(plan: Plan, decoding: Decoding, methods: Sequence[Method]) -> Forecast:
    """Warm every method up on the first prompt and extrapolate."""
    ledgers = warm_up(decoding, methods, plan.prompts[0])
    return Forecast(
        configurations=tuple(method.name for method in methods),
        prompts=len(plan.prompts),
        repeats=plan.repeats,
        trials=plan.trials,
        seconds=expected_seconds(plan, ledgers),
        detectable=minimum_detectable_effect(
            ASSUMED_SPREAD, len(plan.prompts), len(plan.configurations)
        ),
    )


def expected_seconds(plan: Plan, ledgers: Mapping[str, Ledger]) -> float:
    """Seconds of the run when each method goes on as in its short warm run on prompt 0."""
    relative = sum(len(p.prompt_ids) for p in plan.prompts) / len(plan.prompts[0].prompt_ids)
    total = 0.0
    for ledger in ledgers.values():
        prefill = ledger.passes[0].seconds
        steps = max(1, ledger.committed or ledger.count(Phase.PLAIN))
        token = (ledger.wall_s - prefill) / steps
        total += prefill * relative + token * plan.max_new_tokens * len(plan.prompts)
    step = min(ledger.passes[-1].seconds for ledger in ledgers.values())
    curve = (ROUNDS + WARM_ROUNDS) * len(WIDTHS) * CURVE_PASS * step
    return plan.repeats * total + curve
