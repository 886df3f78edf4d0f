"""Validation: what the weights of this moment are worth, teacher-forced and decoded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch

from breakeven.data.artifact import Row
from breakeven.progress import Meter
from breakeven.train.acceptance import Acceptance
from breakeven.train.feed import passes
from breakeven.train.objective import Objective
from breakeven.train.processes import Processes
from breakeven.train.randomness import generator_of
from breakeven.train.score import Score, Tally
from breakeven.train.wiring import Wiring, walk

STEP = 1 << 31  # in place of a step number: the same anchors every time


@dataclass(frozen=True, slots=True)
class Validated:
    """One evaluation.

    ``simulated`` is teacher-forced with every target to be guessed; ``masked`` is the same as
    noisy as training, None where training hides every target, too.
    """

    loss: float
    simulated: Score
    real: Acceptance
    wiring: Wiring
    masked: Score | None = None

    def content(self) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """From what :meth:`content` gave."""
        masked = content["masked"]
        return cls(
            content["loss"],
            Score(**content["simulated"]),
            Acceptance(**content["real"]),
            Wiring(**content["wiring"]),
            None if masked is None else Score(**masked),
        )

    def metrics(self) -> dict[str, Any]:
        """The fields of a validation entry of the journal."""
        noisy = self.simulated if self.masked is None else self.masked
        return {
            **metrics("validation", self.loss, self.simulated),
            "masked_token_accuracy": noisy.accuracy,
            "target_token_accuracy_of_masked": noisy.target_accuracy,
            "target_token_accuracy_at_ratio_1": self.simulated.accuracy,
            "greedy_prefix_length": self.simulated.prefix_length,
            "real_acceptance_length": self.real.length,
            "real_survival": list(self.real.survival),
            "foretold_acceptance_length": self.wiring.length,
            "wiring_fault": self.wiring.fault,
        }


@dataclass(frozen=True, slots=True)
class Validation:
    """The rows to validate on, the function that decodes them with a drafter, and how often.

    ``decode`` advances the meter it is given by one for each prompt.
    """

    rows: Sequence[Row]
    decode: Callable[[Objective, Sequence[Row], Meter], Acceptance]
    every: int | None = None
    max_new_tokens: int | None = None  # that decoding was given; None: as long as the texts

    @torch.no_grad()
    def run(
        self, objective: Objective, seed: int, processes: Processes, bar: Meter | None = None
    ) -> Validated:
        """Score the rows teacher-forced, then decode their prompts; each process its share.

        Both are stages of ``bar``.
        """
        rows, bar = processes.share(self.rows), bar or Meter()
        objective.eval()
        with bar.stage("validation, texts scored", 2 * len(rows)) as scored:
            own = self._scored(objective, rows, seed, scored)
            walks = []
            for row in rows:
                walks.append(self._walk(objective, row))
                scored.advance()
        with bar.stage("validation, prompts decoded", len(rows)) as decoded:
            real = self.decode(objective, rows, decoded)
        objective.train()
        noisy: list[Tally] = []
        if objective.noised:
            with bar.stage("validation, texts scored as in training", len(rows)) as scored:
                noisy = self._scored(objective, rows, seed, scored)
        tallies = [tally for part in processes.gather(own) for tally in part]
        simulated = added(tallies)
        total = added(processes.gather(real))
        wiring = Wiring.of([walk for part in processes.gather(walks) for walk in part], total)
        parts = [tally for part in processes.gather(noisy) for tally in part]
        masked = added(parts).score if parts else None
        return Validated(simulated.loss, simulated.score, total, wiring, masked)

    def _walk(self, objective: Objective, row: Row) -> tuple[int, int]:
        tokens = min(len(row.continuation_ids), self.max_new_tokens or len(row.continuation_ids))
        return walk(objective.leading(row), tokens, free=objective.free, k=objective.drafts)

    def _scored(
        self, objective: Objective, rows: Sequence[Row], seed: int, bar: Meter
    ) -> list[Tally]:
        tallies = []
        for chunk in passes(rows, 1):
            tallies.append(objective(chunk, generator_of(seed, STEP)).tally)
            bar.advance()
        return tallies


T = TypeVar("T", Tally, Acceptance)


def added(parts: Sequence[T]) -> T:
    """The sum of one or more."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def metrics(split: str, loss: float, score: Score) -> dict[str, Any]:
    """The fields that training and validation entries of the journal share."""
    return {
        "split": split,
        "loss": loss,
        "accuracy": score.accuracy,
        "accuracies": score.accuracies,
        "target_accuracy": score.target_accuracy,
        "simulated_acceptance_length": score.acceptance_length,
        "simulated_survival": score.survival,
    }
