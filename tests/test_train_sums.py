"""A step's loss is the mean over its labels, however its rows are cut into passes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.train.feed import Feed
from breakeven.train.loop import Trainer
from breakeven.train.objective import Objective
from breakeven.train.randomness import generator_of
from breakeven.train.recipe import LoopSettings
from breakeven.train.validation import Validation
from breakeven.verifier.decoder import LeanVerifier
from tiny import tiny_verifier
from training import decoded, objective_of, own_rows, shaken

CASES = [
    ("fastmtp", {"vocabulary": 24}),
    ("peft-bd-gated", {"anchors": 3}),
    ("peft-bd", {"anchors": 3, "mask_ratio": (0.3, 1.0), "weighting": "mixed"}),
    ("peft-bd", {"anchors": 3, "weighting": "prefix"}),
]


@pytest.fixture(scope="module")
def verifier() -> LeanVerifier:
    return tiny_verifier()


@pytest.fixture(scope="module")
def rows(verifier: LeanVerifier) -> list[Row]:
    """Four texts of very unequal length."""
    return [
        dataclasses.replace(row, continuation_ids=row.continuation_ids[: 5 + 4 * i])
        for i, row in enumerate(own_rows(verifier, 4, new_tokens=20))
    ]


def step(
    objective: Objective, verifier: LeanVerifier, rows: list[Row], per_pass: int, folder: Path
) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one step, before clipping."""
    trainer = Trainer(
        objective,
        Feed(rows, 4, 0),
        LoopSettings(rows_per_step=4, rows_per_pass=per_pass, trackers=()),
        Validation(rows, lambda o, some, _: decoded(o, verifier, some)),
        folder,
    )
    objective.zero_grad()
    tally = trainer._accumulate(rows)
    trainer._replicas.normalise(tally.weight, largest=1e9)
    return tally.loss, [p.grad.clone() for p in objective.parameters() if p.grad is not None]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_passes_of_one_and_of_four_rows_give_one_loss_and_one_gradient(
    name: str,
    settings: dict[str, object],
    verifier: LeanVerifier,
    rows: list[Row],
    tmp_path: Path,
) -> None:
    objective = shaken(objective_of(name, verifier, rows, **settings))
    loss, gradients = step(objective, verifier, rows, 1, tmp_path)
    for per_pass in (2, 4):
        again, others = step(objective, verifier, rows, per_pass, tmp_path)
        assert again == pytest.approx(loss, abs=1e-12)
        for one, two in zip(gradients, others, strict=True):
            assert torch.allclose(one, two, atol=1e-12)
    means = [float(objective([row], generator_of(0, 0)).loss.detach()) for row in rows]
    assert abs(sum(means) / 4 - loss) > 1e-6  # a mean of means is something else


def test_the_step_has_the_gradient_of_one_batch_of_all_rows(
    verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    objective = shaken(objective_of("fastmtp", verifier, rows))
    loss, gradients = step(objective, verifier, rows, 1, tmp_path)
    whole = objective(rows, generator_of(0, 0)).loss
    objective.zero_grad()
    whole.backward()
    assert float(whole.detach()) == pytest.approx(loss, abs=1e-12)
    for parameter, gradient in zip(objective.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-12)
