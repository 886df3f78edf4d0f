"""Validation: what the weights of this moment are worth, teacher-forced and decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from breakeven.data.artifact import Row
from breakeven.train.acceptance import Acceptance
from breakeven.train.feed import generator_of, passes
from breakeven.train.objective import Objective
from breakeven.train.score import Score

STEP = 1 << 31  # in place of a step number: the same anchors every time


@dataclass(frozen=True, slots=True)
class Validated:
    """One evaluation."""

    loss: float
    simulated: Score
    real: Acceptance


@dataclass(frozen=True, slots=True)
class Validation:
    """The rows to validate on, the function that decodes with a drafter, and how often."""

    rows: Sequence[Row]
    decode: Callable[[Objective], Acceptance]
    every: int | None = None

    @torch.no_grad()
    def run(self, objective: Objective, seed: int) -> Validated:
        """Score the rows teacher-forced, then decode their prompts."""
        generator = generator_of(seed, STEP)
        judged = [objective(chunk, generator) for chunk in passes(self.rows, 1)]
        simulated = judged[0].score
        for one in judged[1:]:
            simulated = simulated + one.score
        loss = sum(float(one.loss) for one in judged) / len(judged)
        return Validated(loss, simulated, self.decode(objective))


def metrics(split: str, loss: float, score: Score) -> dict[str, Any]:
    """The fields that training and validation entries of the journal share."""
    return {
        "split": split,
        "loss": loss,
        "accuracy": score.accuracy,
        "accuracies": score.accuracies,
        "simulated_acceptance_length": score.acceptance_length,
        "simulated_survival": score.survival,
    }
