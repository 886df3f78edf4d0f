"""The training loop, one for all drafters.

Rows, random numbers and the learning rate of a step depend only on the recipe and the step
number, and a checkpoint holds everything else, so a run that was killed and started again ends
with the same bits (``tests/test_train_loop.py``).
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.data.artifact import Row
from breakeven.errors import TrainingError
from breakeven.progress import Meter, meter
from breakeven.train import checkpoint
from breakeven.train.checkpoint import Counts
from breakeven.train.feed import Feed, by_length, passes
from breakeven.train.journal import Journal
from breakeven.train.objective import Judged, Objective
from breakeven.train.processes import Processes, Replicas, check_share
from breakeven.train.randomness import generator_of
from breakeven.train.recipe import LoopSettings
from breakeven.train.schedule import Schedule
from breakeven.train.score import Tally
from breakeven.train.validation import Validated, Validation, added, metrics

LATEST, BEST = "latest.pt", "best.pt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: counts, what the weights kept are worth, and how it was spread."""

    counts: Counts
    validated: Validated
    processes: int = 1
    parallel: str = "single"  # or ddp, fsdp


class Trainer:
    """Trains one objective; ``folder`` holds checkpoints and metrics.

    ``corpus`` are all training rows of the artifact, also those the feed leaves out (default: the
    feed's). ``identity`` is anything that says what is trained on what; a checkpoint with another
    one is refused. Every process of a run makes its own trainer; only the main one writes.
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
        processes: Processes | None = None,
    ) -> None:
        self.objective, self.feed, self.settings = objective, feed, settings
        self.validation, self.folder = validation, folder
        self._identity = identity
        self._schedule = Schedule(settings.steps, settings.max_minutes, settings.warmup)
        self._counts = Counts()
        self._processes = processes or Processes(next(objective.parameters()).device)
        check_share(settings.rows_per_step, self._processes)
        content = checkpoint.read(folder / LATEST)
        began = time.perf_counter()
        objective.prepare(feed.rows, corpus or feed.rows, fresh=content is None)
        self._spend(time.perf_counter() - began)  # a warm start is part of the budget
        self._replicas = Replicas(self._processes, objective, shard=settings.shard)
        self._optimizer = torch.optim.AdamW(
            _groups(objective, settings.weight_decay), lr=settings.lr, betas=settings.betas
        )
        if content is not None:
            self._restore(content)
        self._processes.wait()  # all have read before anything is written
        self._journal = (
            Journal(folder, self._counts.step, trackers=settings.trackers)
            if self._processes.main
            else None
        )
        self._latest: Validated | None = None

    @property
    def resumed_step(self) -> int:
        """The step the checkpoint held, 0 for a new run."""
        return self._counts.step

    def run(self) -> Outcome:
        """Train to the end, keep the best weights in the objective, and say what they are worth.

        Raises :class:`TrainingError` for a loss that is not finite; the last checkpoint stays.
        """
        validated = None
        with self._meter() if self._processes.main else nullcontext(Meter()) as bar:
            shown = self._part(self._total)
            while not self._over():
                self._advance(bar)
                validated = self._after_step(bar)
                if self._over():  # nothing is done before it is known what it is worth
                    validated = validated or self._validate(bar)
                bar.advance(self._part(self._total) - shown)
                shown = self._part(self._total)
            validated = validated or self._validate(bar)
        if self._counts.best_step != self._counts.step:
            validated = self._restore_best()
        if self._journal is not None:
            self._journal.close()
        return Outcome(self._counts, validated, self._processes.count, self._replicas.kind)

    @property
    def _total(self) -> int:
        """Of what :meth:`_part` tells a part: seconds where there is a limit, else steps."""
        minutes = self.settings.max_minutes
        return self.settings.steps if minutes is None else round(60 * minutes)

    def _meter(self) -> AbstractContextManager[Meter]:
        """The meter of the run: its own time and what it counts add up.

        What was prepared just now has had a meter of its own and is not counted again.
        """
        timed = self.settings.max_minutes is not None
        label = f"training {self.objective.name} with validation{' (s)' if timed else ''}"
        done, before = self._part(self._total), 0
        if timed and not self.resumed_step:
            done, before = 0, done
        if before:
            print(f"{before} s of the {self._total} s went to start weights", file=sys.stderr)
        return meter(label, self._total - before, done=done)

    def rehearse(self, steps: int) -> list[float]:
        """Seconds of each of the first ``steps`` steps, and of one validation behind them.

        For telling how long a run will take: no checkpoint is written.
        """
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self._advance(Meter())
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        self.validation.run(self.objective, self.settings.seed, self._processes)
        return [*seconds, time.perf_counter() - began]

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write the drafter with weights as ``dtype``, in the main process."""
        with self._replicas.whole():
            if self._processes.main:
                self.objective.save(folder, dtype)
        self._processes.wait()

    def _spend(self, seconds: float) -> None:
        """Count time; the main process's clock is everybody's."""
        self._counts.elapsed_s = self._processes.agree(self._counts.elapsed_s + seconds)

    def _advance(self, bar: Meter) -> None:
        """One step: gradients of its rows, clipped, applied."""
        began = time.perf_counter()
        counts = self._counts
        rows = self.feed.step(counts.step)
        tally = self._accumulate(rows)
        norm = self._replicas.normalise(tally.weight or math.nan, self.settings.clip)
        self._check(tally, norm, rows)
        factor = self._schedule.factor(counts.step, counts.elapsed_s)
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.lr * factor
        self._optimizer.step()
        self._optimizer.zero_grad()
        counts.step += 1
        counts.labels += tally.score.labels
        counts.tokens += sum(len(r.prompt_ids) + len(r.continuation_ids) for r in rows)
        self._spend(time.perf_counter() - began)
        bar.note(self._note(tally))
        if counts.step % self.settings.log_every == 0:
            self._write(
                **metrics("train", tally.loss, tally.score),
                lr=self.settings.lr * factor,
                gradient_norm=norm,
                tokens=counts.tokens,
                elapsed_s=counts.elapsed_s,
            )

    def _accumulate(self, rows: Sequence[Row]) -> Tally:
        """Gradients of the *sum* of all losses of the step, over passes and processes."""
        generator = generator_of(self.settings.seed, self._counts.step)
        own = self._processes.share(by_length(rows))
        chunks = passes(own, self.settings.rows_per_pass)
        tallies = []
        for number, chunk in enumerate(chunks, start=1):
            with self._replicas.exchanging(last=number == len(chunks)):
                judged: Judged = self._replicas.module(chunk, generator)
                tallies.append(judged.tally)
                (judged.loss * judged.tally.weight).backward()
        return added(self._processes.gather(added(tallies)))

    def _check(self, tally: Tally, norm: float, rows: Sequence[Row]) -> None:
        if math.isfinite(tally.loss) and math.isfinite(norm):
            return
        self._optimizer.zero_grad()
        ids = ", ".join(row.id for row in rows)
        kept = checkpoint.read(self.folder / LATEST)
        state = (
            f"the checkpoint of step {kept['counts']['step']} is kept"
            if kept
            else "no checkpoint was due yet"
        )
        cause = f"loss {tally.loss}, gradient norm {norm} on rows {ids}"
        remedy = "lower train.lr, or leave these rows out"
        if not tally.weight:
            cause = f"rows {ids} have no label to train on (all are masked or unknown)"
            remedy = "leave these rows out, or enlarge method.vocabulary"
        raise TrainingError(
            f"step {self._counts.step + 1}: {cause}; {state} in {self.folder}; {remedy}"
        )

    def _after_step(self, bar: Meter) -> Validated | None:
        """Evaluate and save when it is time; what was found if this was an evaluation."""
        counts, began = self._counts, time.perf_counter()
        over = self._over()
        due = self.validation.every is not None and counts.step % self.validation.every == 0
        found = self._validate(bar) if over or due else None
        self._spend(time.perf_counter() - began)
        if over or counts.step % self.settings.checkpoint_every == 0:
            self._save()
        return found

    def _validate(self, bar: Meter) -> Validated:
        """Evaluate, and keep the weights if they decode best so far."""
        counts = self._counts
        with self._replicas.whole():
            found = self.validation.run(self.objective, self.settings.seed, self._processes, bar)
        if found.wiring.fault and not (self._latest and self._latest.wiring.fault):
            self._warn(found)
        self._latest = found
        self._write(**found.metrics(), elapsed_s=counts.elapsed_s)
        if found.real.length > counts.best:
            counts.best, counts.best_step = found.real.length, counts.step
            self._keep(BEST, {"objective": self._replicas.weights(), **found.content()})
        return found

    def _warn(self, found: Validated) -> None:
        if self._processes.main:
            print(f"warning: step {self._counts.step}: {found.wiring}", file=sys.stderr)

    def _write(self, **entry: Any) -> None:
        if self._journal is not None:
            self._journal.write(self._counts.step, **entry)

    def _over(self) -> bool:
        """Whether all steps are done or all time is spent."""
        return self._schedule.done(self._counts.step, self._counts.elapsed_s) >= 1.0

    def _part(self, total: int) -> int:
        """How much of ``total`` is done, by the schedule: steps or minutes, whichever end first."""
        return round(total * self._schedule.done(self._counts.step, self._counts.elapsed_s))

    def _note(self, tally: Tally) -> str:
        shown = f", AL {self._latest.real.length:.2f}" if self._latest else ""
        return (
            f"step {self._counts.step}, loss {tally.loss:.3f}, accuracy {tally.score.accuracy:.3f}"
            f", simulated AL {tally.score.acceptance_length:.2f}{shown}"
        )

    def _save(self) -> None:
        counts = dataclasses.asdict(self._counts)
        state = self._replicas.state(self._optimizer)
        self._keep(LATEST, {"identity": self._identity, "counts": counts, **state})

    def _keep(self, name: str, content: dict[str, Any]) -> None:
        if self._processes.main:
            checkpoint.write(self.folder / name, content)

    def _restore(self, content: dict[str, Any]) -> None:
        if content["identity"] != self._identity:
            raise TrainingError(
                f"{self.folder}: holds a checkpoint of another recipe, artifact or verifier; give "
                "another --out, or --force to start over"
            )
        self._replicas.restore(content, self._optimizer)
        self._counts = Counts(**content["counts"])

    def _restore_best(self) -> Validated:
        self._processes.wait()  # until it is written
        content = checkpoint.read(self.folder / BEST)
        assert content is not None
        self._replicas.restore({"objective": content.pop("objective")})
        return Validated.of(content)


def _groups(objective: Objective, decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices only, as usual."""
    parameters = [p for p in objective.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
