"""What a person may do wrong with a benchmark is answered in one line and exit code 2."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest
import torch

from benchmarks.command import start

FOLDER = Path(__file__).parents[1] / "benchmarks"
MODULES = [p.stem for p in sorted(FOLDER.glob("*.py")) if "__main__" in p.read_text()] + ["peers"]
CUDA = torch.cuda.is_available()


def call(module: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of ``python -m benchmarks.<module>``."""
    monkeypatch.setattr(sys, "argv", [f"{module}.py", *words])
    with warnings.catch_warnings(action="ignore"), pytest.raises(SystemExit) as left:
        runpy.run_module(f"benchmarks.{module}", run_name="__main__")  # imported already, perhaps
    return left.value.code


def told(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    return shown


@pytest.mark.parametrize("module", MODULES)
def test_an_option_that_no_benchmark_has(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ngram"] if module in ("acceptance", "learning_curve") else []
    assert call(module, [*words, "--nonsense"], monkeypatch) == 2
    assert f"--nonsense; see `python -m benchmarks.{module} --help`" in told(capsys)


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        pytest.param("gpu_campaign", [], "this PyTorch sees no CUDA device",
                     marks=pytest.mark.skipif(CUDA, reason="there is a GPU")),
        ("gpu_campaign", ["--split", "nowhere.gguf"], "nowhere.gguf: no such file to split"),
        ("decode", ["--prompts", "0"], "--prompts: '0': give a whole number of 1 or more"),
        ("decode", ["--model", "nowhere"], "nowhere"),
        ("acceptance", ["ngram", "--option", "groups"], "--option 'groups': write KEY=VALUE"),
        ("learning_curve", ["a=nowhere"], "no evaluation yet in a=nowhere"),
        ("training", ["--artifact", "nowhere", "--model", "nowhere"], "nowhere"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong(
    module: str,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(module, words, monkeypatch) == 2
    assert said in told(capsys)


def test_a_package_that_is_missing_and_an_interruption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def without() -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as left:
        start(without)
    assert left.value.code == 2
    assert "matplotlib is not installed; run: pip install" in told(capsys)
    with pytest.raises(SystemExit) as left:
        start(interrupted)
    assert left.value.code == 130
    with pytest.raises(ZeroDivisionError):  # ours: with its traceback
        start(lambda: print(1 // 0))
