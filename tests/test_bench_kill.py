"""``kill -9`` in the middle of a benchmark: resumed, it ends as if it had never been killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from breakeven.cli.app import run
from breakeven.measure.records import Record, read_records
from breakeven.verifier.load import load_verifier
from measuring import prompts, small_artifact
from tiny_chat import chat_model

KILL_AFTER = 10  # lines
TRIALS = 6 * 3 * 3  # prompts, configurations, repeats


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("tiny")
    model = chat_model(folder / "model")
    identity = load_verifier(str(model), threads=1).identity
    artifact = small_artifact(folder / "artifact", prompts(6), identity)
    return [
        "bench", f"verifier.name={model}", f"prompts.artifact={artifact}", "prompts.count=6",
        "verifier.threads=1", "drafters=[ngram]", "k=[2,4]", "repeats=3", "max_new_tokens=40",
    ]  # fmt: skip


def kill_in_the_middle(words: list[str], out: Path) -> None:
    """Start the command in a process of its own and kill it once some lines are there."""
    lines = out / "requests.jsonl"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "breakeven", *words, "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not lines.exists() or lines.read_bytes().count(b"\n") < KILL_AFTER:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL


def untimed(record: Record) -> tuple[Any, ...]:
    """What does not depend on the clock."""
    return (
        *record.key, record.tokens, record.finish, record.rounds, record.accepted_histogram,
        record.token_ids,
    )  # fmt: skip


def acceptance(out: Path) -> list[dict[str, str]]:
    with (out / "acceptance.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_killed_benchmark_is_continued_without_loss_or_repetition(
    command: list[str], tmp_path: Path
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    kill_in_the_middle(command, killed)
    kept = (killed / "requests.jsonl").read_bytes().split(b"\n")[:-1]
    assert KILL_AFTER <= len(kept) < TRIALS
    assert not (killed / "verdict.json").exists()
    assert run([*command, "--out", str(killed)]) == 2  # not without --resume
    assert run([*command, "--out", str(killed), "--resume"]) == 0
    assert (killed / "requests.jsonl").read_bytes().split(b"\n")[: len(kept)] == kept
    records = read_records(killed / "requests.jsonl")
    assert len(records) == len({record.key for record in records}) == TRIALS

    assert run([*command, "--out", str(whole)]) == 0
    uninterrupted = read_records(whole / "requests.jsonl")
    assert [untimed(r) for r in records] == [untimed(r) for r in uninterrupted]
    files = [
        {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
        for out in (killed, whole)
    ]
    assert files[0] == files[1]
    assert acceptance(killed) == acceptance(whole)
    for name in ("recipe.yaml", "audit.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    verdict = json.loads((killed / "verdict.json").read_text())
    assert verdict["best"] in ("ngram-k2", "ngram-k4")
