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
import yaml

from breakeven.cli.app import run
from breakeven.data.artifact import write_artifact
from breakeven.data.contract import CHECKED
from breakeven.errors import TrainingError
from breakeven.train import checkpoint
from breakeven.train.journal import METRICS_FILE, entries
from breakeven.train.loop import LATEST
from breakeven.train.processes import Processes, check_share
from breakeven.train.provenance import read_provenance
from breakeven.verifier.load import load_verifier
from test_artifact import contract
from tiny_chat import chat_model
from training import own_rows

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


RECIPE: dict[str, Any] = {
    "train": {"steps": 6, "rows_per_step": 3, "checkpoint_every": 2, "log_every": 1, "lr": 1e-2},
    "evaluate": {"every": 3, "prompts": 3, "max_new_tokens": 8},
}
OF_METHOD: dict[str, dict[str, Any]] = {
    "peft-bd": {"masks": 4, "anchors": 4, "rank": 2},
    "peft-bd-gated": {"anchors": 4, "rank": 2},
    "fastmtp": {"start_rows": 2, "vocabulary": 32},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and an artifact made of its answers."""
    folder = tmp_path_factory.mktemp("data")
    loaded = load_verifier(str(chat_model(folder / "model")))
    rows = own_rows(loaded.verifier, 8)  # type: ignore[arg-type]
    parts = {"train": rows[:5], "validation": rows[5:], "test": []}
    about = contract({name: len(part) for name, part in parts.items()})
    known = {name: getattr(loaded.identity, name) for name in CHECKED}
    write_artifact(folder / "art", parts, about.model_copy(update=known))
    return folder


def launched(program: str, data: Path, recipe: Path, *words: str) -> tuple[int, str]:
    """``breakeven train`` as a launcher starts it: exit code, and what was said."""
    command = [sys.executable, "-m", *program.split(), "-m", "breakeven", "train", str(recipe)]
    answer = subprocess.run(
        [*command, "-a", str(data / "art"), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return answer.returncode, answer.stderr


@pytest.fixture(params=OF_METHOD)
def recipe(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Path:
    file = tmp_path / "recipe.yaml"
    about = {"drafter": request.param, "verifier": str(data / "model"), **RECIPE}
    file.write_text(yaml.safe_dump({**about, "method": OF_METHOD[request.param]}))
    return file


@pytest.mark.parametrize("shard", [False, True])
def test_the_program_under_torchrun_trains_as_alone(
    shard: bool, recipe: Path, data: Path, tmp_path: Path
) -> None:
    """The command that the documentation gives; two processes speak with one voice."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert run(["train", str(recipe), "-a", str(data / "art"), "-o", str(one)]) == 0
    more = [f"train.shard={str(shard).lower()}"]
    torchrun = "torch.distributed.run --nproc-per-node 2"
    code, said = launched(torchrun, data, recipe, "-o", str(two), *more)
    assert code == 0, said
    for phrase in ("draft vocabulary:", "start weights, texts read:", "training "):
        assert said.count(phrase) <= 1
    papers = read_provenance(two)
    assert (papers["processes"], papers["parallel"]) == (2, "fsdp" if shard else "ddp")
    alone = read_provenance(one)
    assert [papers[key] for key in ("steps", "tokens_seen")] == [
        alone[key] for key in ("steps", "tokens_seen")
    ]
    assert papers["acceptance"] == alone["acceptance"]
    ends = [checkpoint.read(folder / "training" / LATEST) for folder in (one, two)]
    assert ends[0] is not None
    assert ends[1] is not None
    for name, tensor in ends[0]["objective"].items():
        assert torch.allclose(tensor, ends[1]["objective"][name], atol=1e-5), name


@pytest.mark.parametrize("recipe", ["fastmtp"], indirect=True)
def test_accelerate_that_starts_one_process_for_several_is_refused(
    recipe: Path, data: Path, tmp_path: Path
) -> None:
    """On CPUs ``accelerate launch`` needs MPI; one process would train as if it were all."""
    launch = "accelerate.commands.launch --cpu --num_processes"
    out = tmp_path / "out"
    code, said = launched(f"{launch} 2", data, recipe, "-o", str(out))
    assert code != 0
    assert "start several with: torchrun --nproc-per-node N -m breakeven train" in said
    assert not out.exists()
    code, said = launched(f"{launch} 1", data, recipe, "-o", str(out))
    assert code == 0, said
    assert read_provenance(out)["processes"] == 1


@pytest.mark.parametrize("device", ["cpu:0", "cpu:3"])
def test_a_numbered_cpu_is_the_cpu(device: str, data: Path) -> None:
    """Launchers number devices; weights are read for ``cpu``."""
    assert str(load_verifier(str(data / "model"), device=device).verifier.device) == "cpu"
