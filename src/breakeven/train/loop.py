"""The training loop, one for all drafters.

Rows, random numbers and the learning rate of a step depend only on the recipe and the step
number, and a checkpoint holds everything else, so a run that was killed and started again ends
with the same bits (``tests/test_train_loop.py``).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from breakeven.data.artifact import Row
from breakeven.errors import TrainingError
from breakeven.progress import Meter, meter
from breakeven.train import checkpoint
from breakeven.train.acceptance import Acceptance
from breakeven.train.checkpoint import Counts
from breakeven.train.feed import Feed, generator_of, passes
from breakeven.train.journal import Journal
from breakeven.train.objective import Objective
from breakeven.train.recipe import LoopSettings
from breakeven.train.schedule import Schedule
from breakeven.train.score import Score
from breakeven.train.validation import Validation, metrics

LATEST, BEST = "latest.pt", "best.pt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: counts, the acceptance of the weights kept, and their simulated score."""

    counts: Counts
    acceptance: Acceptance
    simulated: Score


class Trainer:
    """Trains one objective; ``folder`` holds checkpoints and metrics.

    ``corpus`` are all training rows of the artifact, also those the feed leaves out (default: the
    feed's). ``identity`` is anything that says what is trained on what; a checkpoint with another
    one is refused.
    """

    def __init__(
        self,
        objective: Objective,
        feed: Feed,
        settings: LoopSettings,
        validation: Validation,
        folder: Path,
        *,
        corpus: Sequence[Row] | None = None,
        identity: str = "",
        tensorboard: bool = True,
    ) -> None:
        self.objective, self.feed, self.settings = objective, feed, settings
        self.validation, self.folder = validation, folder
        self._identity = identity
        self._schedule = Schedule(settings.steps, settings.max_minutes, settings.warmup)
        self._counts = Counts()
        content = checkpoint.read(folder / LATEST)
        began = time.perf_counter()
        objective.prepare(feed.rows, corpus or feed.rows, fresh=content is None)
        self._counts.elapsed_s = time.perf_counter() - began  # a warm start is part of the budget
        device = next(objective.parameters()).device.type
        self._accelerator = Accelerator(cpu=device == "cpu")
        optimizer = torch.optim.AdamW(
            _groups(objective, settings.weight_decay), lr=settings.lr, betas=settings.betas
        )
        self._module, self._optimizer = self._accelerator.prepare(objective, optimizer)
        if content is not None:
            self._restore(content)
        self._journal = Journal(folder, self._counts.step, tensorboard=tensorboard)
        self._latest: Acceptance | None = None

    @property
    def resumed_step(self) -> int:
        """The step the checkpoint held, 0 for a new run."""
        return self._counts.step

    def run(self) -> Outcome:
        """Train to the end, keep the best weights in the objective, and say what they are worth.

        Raises :class:`TrainingError` for a loss that is not finite; the last checkpoint stays.
        """
        label = f"training {self.objective.name}"
        by_time = self.settings.max_minutes is not None
        total = round(60 * self.settings.max_minutes) if by_time else self.settings.steps  # type: ignore[operator]
        done = round(self._counts.elapsed_s) if by_time else self._counts.step
        outcome = None
        with meter(f"{label} (s)" if by_time else label, total, done=min(done, total)) as bar:
            while self._schedule.done(self._counts.step, self._counts.elapsed_s) < 1.0:
                before = self._counts.elapsed_s
                self._advance(bar)
                outcome = self._after_step()
                whole = int(self._counts.elapsed_s) - int(before)
                bar.advance(whole if by_time else 1)
        outcome = outcome or self._validate()
        if self._counts.best_step != self._counts.step:
            outcome = self._restore_best()
        self._journal.close()
        return outcome

    def _advance(self, bar: Meter) -> None:
        """One step: gradients of its rows, clipped, applied."""
        began = time.perf_counter()
        counts = self._counts
        rows = self.feed.step(counts.step)
        score, loss = self._accumulate(rows)
        norm = self._accelerator.clip_grad_norm_(self._module.parameters(), self.settings.clip)
        self._check(loss, float(norm), rows)
        factor = self._schedule.factor(counts.step, counts.elapsed_s)
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.lr * factor
        self._optimizer.step()
        self._optimizer.zero_grad()
        counts.step += 1
        counts.labels += int(score.counted.sum())
        counts.tokens += sum(len(r.prompt_ids) + len(r.continuation_ids) for r in rows)
        counts.elapsed_s += time.perf_counter() - began
        bar.note(self._note(loss, score))
        if counts.step % self.settings.log_every == 0:
            self._journal.write(
                counts.step,
                **metrics("train", loss, score),
                lr=self.settings.lr * factor,
                gradient_norm=float(norm),
                tokens=counts.tokens,
                elapsed_s=counts.elapsed_s,
            )

    def _accumulate(self, rows: Sequence[Row]) -> tuple[Score, float]:
        generator = generator_of(self.settings.seed, self._counts.step)
        total: Score | None = None
        loss = 0.0
        for chunk in passes(rows, self.settings.rows_per_pass):
            judged = self._module(chunk, generator)
            share = len(chunk) / len(rows)
            self._accelerator.backward(judged.loss * share)
            loss += float(judged.loss.detach()) * share
            total = judged.score if total is None else total + judged.score
        assert total is not None
        return total, loss

    def _check(self, loss: float, norm: float, rows: Sequence[Row]) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        self._optimizer.zero_grad()
        ids = ", ".join(row.id for row in rows)
        kept = checkpoint.read(self.folder / LATEST)
        state = (
            f"the checkpoint of step {kept['counts']['step']} is kept"
            if kept
            else "no checkpoint was due yet"
        )
        raise TrainingError(
            f"step {self._counts.step + 1}: loss {loss}, gradient norm {norm} on rows {ids}; "
            f"{state} in {self.folder}; lower train.lr, or leave these rows out"
        )

    def _after_step(self) -> Outcome | None:
        """Evaluate and save when it is time; the outcome if this was an evaluation."""
        counts, began = self._counts, time.perf_counter()
        over = self._schedule.done(counts.step, counts.elapsed_s) >= 1.0
        due = self.validation.every is not None and counts.step % self.validation.every == 0
        outcome = self._validate() if over or due else None
        counts.elapsed_s += time.perf_counter() - began
        if over or counts.step % self.settings.checkpoint_every == 0:
            self._save()
        return outcome

    def _validate(self) -> Outcome:
        """Evaluate, and keep the weights if they decode best so far."""
        counts = self._counts
        found = self.validation.run(self.objective, self.settings.seed)
        self._latest = found.real
        self._journal.write(
            counts.step,
            **metrics("validation", found.loss, found.simulated),
            real_acceptance_length=found.real.length,
            real_survival=list(found.real.survival),
            elapsed_s=counts.elapsed_s,
        )
        if found.real.length > counts.best:
            counts.best, counts.best_step = found.real.length, counts.step
            kept = {
                "objective": self.objective.state_dict(),
                "acceptance": dataclasses.asdict(found.real),
                "simulated": dataclasses.asdict(found.simulated),
            }
            checkpoint.write(self.folder / BEST, kept)
        return Outcome(counts, found.real, found.simulated)

    def _note(self, loss: float, score: Score) -> str:
        left = self._schedule.left_s(self._counts.step, self._counts.elapsed_s)
        real = self._latest
        shown = f", AL {real.length:.2f}" if real else ""
        return (
            f"step {self._counts.step}, loss {loss:.3f}, accuracy {score.accuracy:.3f}, simulated "
            f"AL {score.acceptance_length:.2f}{shown}, {left:.0f} s left"
        )

    def _save(self) -> None:
        checkpoint.write(
            self.folder / LATEST,
            {
                "identity": self._identity,
                "counts": dataclasses.asdict(self._counts),
                "objective": self.objective.state_dict(),
                "optimizer": self._optimizer.state_dict(),
            },
        )

    def _restore(self, content: dict[str, Any]) -> None:
        if content["identity"] != self._identity:
            raise TrainingError(
                f"{self.folder}: holds a checkpoint of another recipe or artifact; give another "
                "--out, or --force to start over"
            )
        self.objective.load_state_dict(content["objective"])
        self._optimizer.load_state_dict(content["optimizer"])
        self._counts = Counts(**content["counts"])

    def _restore_best(self) -> Outcome:
        content = checkpoint.read(self.folder / BEST)
        assert content is not None
        self.objective.load_state_dict(content["objective"])
        kept = content["acceptance"]
        acceptance = Acceptance(**{**kept, "survival": tuple(kept["survival"])})
        return Outcome(self._counts, acceptance, Score(**content["simulated"]))


def _groups(objective: Objective, decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices only, as usual."""
    parameters = [p for p in objective.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
