"""The loop: exact resume, atomic checkpoints, a bad loss, the feed and the schedule."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven import progress
from breakeven.core import Finish
from breakeven.data.artifact import Row, load_artifact, write_artifact
from breakeven.errors import TrainingError
from breakeven.train import checkpoint
from breakeven.train.feed import Feed, passes, spread, usable
from breakeven.train.journal import METRICS_FILE, Journal, entries
from breakeven.train.loop import BEST, LATEST, Trainer
from breakeven.train.objective import Judged, Objective
from breakeven.train.recipe import DataSettings, FastMtpRecipe, LoopSettings
from breakeven.train.run import TRAINING_FOLDER, check_room, fingerprint
from breakeven.train.schedule import Schedule
from breakeven.train.validation import Validation
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from test_artifact import contract
from tiny import tiny_verifier
from training import METHODS, decoded, objective_of, own_rows


class Killed(BaseException):
    """Stands for kill -9: nothing in the loop may catch it."""


@pytest.fixture(scope="module")
def verifier() -> LeanVerifier:
    return tiny_verifier(dtype=torch.float32)


@pytest.fixture(scope="module")
def rows(verifier: LeanVerifier) -> list[Row]:
    return own_rows(verifier, 7)


def trainer_of(
    name: str,
    verifier: LeanVerifier,
    rows: list[Row],
    folder: Path,
    *,
    kill_at: int | None = None,
    identity: str = "",
    every: int | None = 8,
    **settings: Any,
) -> Trainer:
    objective = objective_of(name, verifier, rows)
    if kill_at is not None:
        bomb(objective, kill_at)
    chosen = {
        "steps": 20,
        "rows_per_step": 3,
        "rows_per_pass": 2,
        "checkpoint_every": 5,
        "trackers": (),
    }
    return Trainer(
        objective,
        Feed(rows, 3, 0),
        LoopSettings(**{**chosen, **settings}),
        Validation(rows[:2], lambda o, some, bar: decoded(o, verifier, some, bar=bar), every),
        folder,
        identity=identity,
    )


def bomb(objective: Objective, step: int) -> None:
    """Raise :class:`Killed` inside the given step's second pass."""
    calls = Counter[str]()

    def hook(*_: object) -> None:
        calls["passes"] += objective.training
        if calls["passes"] == 2 * step + 2:
            raise Killed

    objective.register_forward_pre_hook(hook)


@pytest.mark.parametrize("name", METHODS)
def test_a_killed_run_ends_with_the_same_bits(
    name: str, verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    """T22: 20 steps against 13 + kill + resume from 10, weights and optimizer."""
    whole = trainer_of(name, verifier, rows, tmp_path / "whole")
    straight = whole.run()
    with pytest.raises(Killed):
        trainer_of(name, verifier, rows, tmp_path / "cut", kill_at=13).run()
    second = trainer_of(name, verifier, rows, tmp_path / "cut")
    assert second.resumed_step == 10
    resumed = second.run()
    assert (resumed.counts.labels, resumed.counts.tokens) == (
        straight.counts.labels,
        straight.counts.tokens,
    )
    assert resumed.validated.real == straight.validated.real
    ends = [checkpoint.read(tmp_path / side / LATEST) for side in ("whole", "cut")]
    assert_same(*(end["objective"] for end in ends if end))
    assert_same(*(end["optimizer"] for end in ends if end))
    logs = [
        [
            {k: v for k, v in e.items() if k != "elapsed_s"}
            for e in entries(tmp_path / side / "metrics.jsonl")
        ]
        for side in ("whole", "cut")
    ]
    assert logs[0] == logs[1]


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        for one, two in zip(a, b, strict=True):
            assert_same(one, two)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


def test_the_weights_that_decode_best_are_kept(
    verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    trainer = trainer_of("fastmtp", verifier, rows, tmp_path, lr=1.0)  # soon gets worse
    outcome = trainer.run()
    logged = [e for e in entries(tmp_path / "metrics.jsonl") if e["split"] == "validation"]
    best = max(logged, key=lambda e: e["real_acceptance_length"])
    assert outcome.counts.best_step == best["step"]
    assert outcome.validated.real.length == best["real_acceptance_length"]
    kept = checkpoint.read(tmp_path / BEST)
    assert kept is not None
    assert_same(dict(trainer.objective.state_dict()), dict(kept["objective"]))


def test_a_checkpoint_of_another_recipe_is_refused(
    verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    trainer_of("fastmtp", verifier, rows, tmp_path, steps=5, identity="one").run()
    with pytest.raises(
        TrainingError, match="another recipe, artifact or verifier; give another --out"
    ):
        trainer_of("fastmtp", verifier, rows, tmp_path, steps=5, identity="two")


class Poisoned(Objective):
    """A scalar that becomes NaN on one row."""

    name, drafts = "poisoned", 1

    def __init__(self, inner: Objective, row: str) -> None:
        super().__init__(tiny_verifier())
        self.inner, self._row = inner, row

    def labels(self, row: Row) -> int:
        return self.inner.labels(row)

    def judge(self, rows: Sequence[Row], generator: torch.Generator) -> Judged:
        judged = self.inner(rows, generator)
        if any(row.id == self._row for row in rows):
            return Judged(judged.loss * math.nan, judged.score)
        return judged  # type: ignore[no-any-return]

    def right(self, row: Row) -> torch.Tensor:
        return self.inner.right(row)

    def drafter(self) -> Any:
        return self.inner.drafter()

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        self.inner.save(folder)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(
    verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    feed = Feed(rows, 1, 0)
    at = next(
        s for s in range(2, 7) if feed.step(s)[0].id not in {feed.step(0)[0].id, feed.step(1)[0].id}
    )
    poison = feed.step(at)[0].id
    objective = Poisoned(objective_of("fastmtp", verifier, rows), poison)
    settings = LoopSettings(steps=20, rows_per_step=1, checkpoint_every=1, trackers=())
    never = Validation(rows[:1], lambda o, some, _: decoded(o, verifier, some))
    trainer = Trainer(objective, feed, settings, never, tmp_path)
    line = rf"step {at + 1}: loss nan.* on rows {poison}; the checkpoint of step {at} is kept in "
    with pytest.raises(TrainingError, match=line):
        trainer.run()
    kept = checkpoint.read(tmp_path / LATEST)
    assert kept is not None
    assert kept["counts"]["step"] == at
    assert all(bool(t.isfinite().all()) for t in kept["objective"].values())


def test_a_time_budget_ends_the_run_with_a_decayed_rate(
    verifier: LeanVerifier, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.1 * next(ticks))  # a step takes 0.2 s
    budget = {"steps": 10**6, "max_minutes": 0.1, "log_every": 1, "every": None}
    trainer = trainer_of("fastmtp", verifier, rows, tmp_path, **budget)
    outcome = trainer.run()
    assert 20 < outcome.counts.step < 40
    rates = [e["lr"] for e in entries(tmp_path / "metrics.jsonl") if "lr" in e]
    assert rates[-1] < 0.2 * max(rates)
    again = trainer_of("fastmtp", verifier, rows, tmp_path, **budget)
    assert again.run().counts.step == outcome.counts.step  # nothing left to do


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "latest.pt"
    assert checkpoint.read(path) is None
    checkpoint.write(path, {"step": 1})
    with pytest.raises(AttributeError):
        checkpoint.write(path, {"step": lambda: 1})  # cannot be saved
    assert checkpoint.read(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["latest.pt"]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(TrainingError, match=r"cannot be read .*run again with --force"):
        checkpoint.read(path)


def test_every_epoch_has_every_row_once_in_a_new_order() -> None:
    rows = [Row(f"r{i}", "chat", (1,), (2,) * i, Finish.STOP) for i in range(10)]
    feed = Feed(rows, 4, seed=3)
    ids = [row.id for step in range(5) for row in feed.step(step)]
    assert sorted(ids[:10]) == sorted(ids[10:]) == sorted(row.id for row in rows)
    assert ids[:10] != ids[10:]
    assert [r.id for r in Feed(rows, 4, seed=3).step(4)] == ids[16:20]
    assert [r.id for r in Feed(rows, 10, seed=4).step(0)] != ids[:10]
    sizes = [[len(r.continuation_ids) for r in chunk] for chunk in passes(rows, 4)]
    assert sizes == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_every_beginning_of_the_rows_has_all_categories() -> None:
    """An artifact lists its rows by id, hence by category."""
    rows = [Row(f"{c}{i}", c, (1,), (2,), Finish.STOP) for c in ("chat", "code") for i in range(9)]
    ordered = spread(rows, seed=1)
    assert sorted(r.id for r in ordered) == sorted(r.id for r in rows)
    assert [r.category for r in ordered[:6]] == ["chat", "code"] * 3
    assert [r.id for r in ordered] == [r.id for r in spread(rows, seed=1)]
    assert [r.id for r in ordered] != [r.id for r in spread(rows, seed=2)]
    uneven = spread([*rows[:2], *rows[9:]], seed=0)
    assert [r.category for r in uneven].count("code") == 9


def test_rows_without_a_label_are_left_out_and_none_at_all_is_an_error(
    verifier: LeanVerifier,
) -> None:
    """T18."""
    objective = objective_of("peft-bd-gated", verifier, [])
    short = Row("short", "chat", (1, 2), (3, 4), Finish.STOP)
    good = Row("good", "chat", (1, 2), (3, 4, 5), Finish.STOP)
    long = Row("long", "chat", (1,) * 50, (3, 4, 5), Finish.STOP)
    settings = DataSettings(max_tokens=40)
    assert usable([short, good, long], settings, objective, 0) == [good]
    line = r"none of 2 rows can be trained on: 1 are longer than data\.max_tokens=40, 1 have too"
    with pytest.raises(TrainingError, match=line):
        usable([short, long], settings, objective, 0)


def test_the_rate_follows_steps_or_minutes_whichever_is_further() -> None:
    by_both = Schedule(steps=100, minutes=1.0, warmup=0.1)
    assert by_both.done(50, 6.0) == 0.5
    assert by_both.done(50, 54.0) == 0.9
    assert by_both.factor(0, 0.0) > 0.0
    assert by_both.factor(99, 0.0) < 0.01


def test_the_journal_forgets_what_will_be_done_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, trackers=())
    for step in (1, 2, 3):
        journal.write(step, split="train", loss=1.0 / step)
    journal.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # killed while writing
    Journal(tmp_path, resumed_step=2, trackers=()).write(3, split="train", loss=0.5)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(e["step"], e["loss"]) for e in lines] == [(1, 1.0), (2, 0.5), (3, 0.5)]


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    journal = Journal(tmp_path)
    journal.write(1, split="train", loss=0.5)
    journal.close()
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_a_step_without_a_label_names_its_rows(verifier: LeanVerifier, tmp_path: Path) -> None:
    """T18: the loss would be 0 and training would seem to work."""
    row = Row("odd", "chat", (1, 2), (5,) * 6, Finish.STOP)
    other = Row("usual", "chat", (1, 2), (7,) * 9, Finish.STOP)
    objective = objective_of("fastmtp", verifier, [row], vocabulary=1, start="random")
    objective.prepare([row], [other], fresh=False)
    settings = LoopSettings(steps=2, rows_per_step=1, trackers=())
    never = Validation([row], lambda o, some, _: decoded(o, verifier, some))
    trainer = Trainer(objective, Feed([row], 1, 0), settings, never, tmp_path, corpus=[other])
    with pytest.raises(TrainingError, match=r"step 1: rows odd have no label .* no checkpoint was"):
        trainer.run()


def test_a_checkpoint_belongs_to_a_verifier_and_not_to_trackers(tmp_path: Path) -> None:
    rows = [Row("a", "chat", (1, 2), (3, 4, 5), Finish.STOP)]
    parts = {"train": rows, "validation": rows, "test": rows}
    write_artifact(tmp_path / "data", parts, contract(dict.fromkeys(parts, 1)))
    artifact = load_artifact(tmp_path / "data")
    ours = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)
    recipe = FastMtpRecipe()
    print_ = fingerprint(recipe, artifact, ours)
    other = dataclasses.replace(ours, weights_sha256="d" * 64)
    assert fingerprint(recipe, artifact, other) != print_
    silent = recipe.train.model_copy(update={"trackers": (), "shard": True})
    assert fingerprint(recipe.model_copy(update={"train": silent}), artifact, ours) == print_
    faster = recipe.train.model_copy(update={"lr": 1.0})
    assert fingerprint(recipe.model_copy(update={"train": faster}), artifact, ours) != print_


def test_a_kill_while_the_journal_is_reopened_loses_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Journal(tmp_path, trackers=()).write(1, "train", loss=2.0)
    before = entries(tmp_path / METRICS_FILE)

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            Journal(tmp_path, 1, trackers=())
    assert entries(tmp_path / METRICS_FILE) == before
    (tmp_path / TRAINING_FOLDER).mkdir()
    for path in [p for p in tmp_path.iterdir() if p.is_file()]:
        path.rename(tmp_path / TRAINING_FOLDER / path.name)
    check_room(tmp_path, force=False)  # what the kill left is known as ours


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage says all it does."""
    said = partial(progress.meter, every_s=0.0)
    monkeypatch.setattr("breakeven.train.loop.meter", said)
    monkeypatch.setattr("breakeven.train.warm_start.meter", said)


@pytest.mark.usefixtures("talkative")
def test_validation_has_a_meter_of_its_own_inside_that_of_training(
    verifier: LeanVerifier, rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last step is not done before its validation is, which is seen to go on."""
    trainer_of("peft-bd-gated", verifier, rows, tmp_path, every=None, steps=2).run()
    said = re.findall(r"^(.+?): (\d+/\d+), ", capsys.readouterr().err, re.MULTILINE)
    training = "training peft-bd-gated with validation"
    assert said[0] == (training, "1/2")
    assert said[-1] == (training, "2/2")
    between = said[1:-1]
    assert between.index(("validation, texts scored", "4/4")) == 3
    assert ("validation, prompts decoded", "2/2") in between[4:]
    assert all(name != training for name, _ in between)


@pytest.mark.usefixtures("talkative")
def test_time_for_start_weights_is_not_counted_twice(
    verifier: LeanVerifier,
    rows: list[Row],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 90 seconds 70 are spent before the first step: the meter of training is of 20."""
    spend = Trainer._spend
    monkeypatch.setattr(Trainer, "_spend", lambda self, _: spend(self, 70.0))
    trainer = trainer_of("fastmtp", verifier, rows, tmp_path, max_minutes=1.5)
    monkeypatch.setattr(Trainer, "_spend", lambda self, _: spend(self, 5.0))
    trainer.run()
    shown = capsys.readouterr().err
    assert "start weights, texts read: 4/4" in shown
    assert "70 s of the 90 s went to start weights" in shown
    assert shown.splitlines()[-1].startswith("training fastmtp with validation (s): 20/20")
    assert "/90" not in shown
