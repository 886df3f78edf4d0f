"""Several processes: the loss, the weights and the drafter of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.errors import TrainingError
from breakeven.train import checkpoint
from breakeven.train.journal import METRICS_FILE, entries
from breakeven.train.loop import LATEST
from breakeven.train.processes import Processes, check_share

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("spread.py")


def spread(folder: Path, *words: str, processes: int = 2, **environment: str) -> int:
    """Run ``spread.py`` in so many processes; the exit code."""
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launch if processes > 1 else []), str(SCRIPT), str(folder), *words]
    answer = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return answer.returncode


def result(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return content


def assert_equal_runs(one: Path, two: Path) -> None:
    """Loss and gradient norm of every step to 1e-6, the weights at the end, and the decoding."""
    logs = [
        [e for e in entries(folder / METRICS_FILE) if e["split"] == "train"]
        for folder in (one, two)
    ]
    assert [e["step"] for e in logs[0]] == [e["step"] for e in logs[1]] == list(range(1, 7))
    for a, b in zip(*logs, strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-6
        assert abs(a["gradient_norm"] - b["gradient_norm"]) < 1e-6
        assert a["simulated_survival"] == b["simulated_survival"]
    ends = [checkpoint.read(folder / LATEST) for folder in (one, two)]
    assert ends[0] is not None
    assert ends[1] is not None
    for name, tensor in ends[0]["objective"].items():
        assert torch.allclose(tensor, ends[1]["objective"][name], atol=1e-6), name
    for key in ("labels", "length", "simulated"):
        assert result(one)[key] == result(two)[key]


@pytest.fixture(scope="module", params=["peft-bd-gated", "fastmtp"])
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The same run in one process."""
    folder = tmp_path_factory.mktemp("alone")
    assert spread(folder, request.param, processes=1) == 0
    assert result(folder)["parallel"] == "single"
    return request.param, folder


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_as_one_does(
    kind: str, alone: tuple[str, Path], tmp_path: Path
) -> None:
    """Three rows a step: one process takes two of them, the other one."""
    name, one = alone
    shard = {"ACCELERATE_USE_FSDP": "true"} if kind == "fsdp" else {}
    assert spread(tmp_path, name, **shard) == 0
    assert (result(tmp_path)["processes"], result(tmp_path)["parallel"]) == (2, kind)
    assert_equal_runs(one, tmp_path)


def test_a_killed_run_goes_on_with_another_number_of_processes(
    alone: tuple[str, Path], tmp_path: Path
) -> None:
    """Split weights (FSDP) are saved whole: two processes begin, one finishes."""
    name, one = alone
    assert spread(tmp_path, name, "shard", "stop=3") != 0
    assert spread(tmp_path, name, processes=1) == 0
    assert result(tmp_path)["resumed"] == 2
    assert_equal_runs(one, tmp_path)


def test_a_process_without_a_row_is_an_error() -> None:
    class Three(Processes):
        @property
        def count(self) -> int:
            return 3

    check_share(3, Three())
    with pytest.raises(TrainingError, match=r"rows_per_step=2 for 3 processes: .* start fewer"):
        check_share(2, Three())
