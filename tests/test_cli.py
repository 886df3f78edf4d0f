"""The program: every verb teaches, and every mistake is one line and an exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import breakeven
from breakeven.cli.app import VERBS, WAITING, load, main, run
from breakeven.errors import DataError

Captured = pytest.CaptureFixture[str]
Install = Callable[[BaseException], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a verb in the place of ``prepare`` that raises what it is given."""

    def install(error: BaseException) -> None:
        def prepare() -> None:
            """Fail."""
            raise error

        module = SimpleNamespace(prepare=prepare)
        monkeypatch.setitem(sys.modules, "breakeven.cli.prepare", module)

    return install


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_teaches_with_an_example(verb: str, capsys: Captured) -> None:
    assert run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert f"breakeven {verb}" in shown.split("Example")[1]
    assert "<bool>" not in shown, "a flag takes no value"


@pytest.mark.parametrize("verb", VERBS)
def test_examples_fit_80_columns_and_can_be_copied(verb: str) -> None:
    lines = (load(verb).help or "").splitlines()
    examples = [line[4:] for line in lines if line.startswith("    ")]
    assert [line for line in examples if len(line) > 77] == []


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_option_is_one_line(verb: str, capsys: Captured) -> None:
    assert run([verb, "--no-such-option"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: No such option: --no-such-option")
    assert f"breakeven {verb} --help" in shown.err
    assert shown.err.count("\n") == 1


def test_the_program_without_a_verb_lists_them(capsys: Captured) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown and row.summary in shown for verb, row in VERBS.items())


def test_an_unknown_verb_names_the_nearest(capsys: Captured) -> None:
    assert run(["bnech"]) == 2
    assert "Did you mean 'bench'?" in capsys.readouterr().err


def test_the_version(capsys: Captured) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"breakeven {breakeven.__version__}\n"


def test_listing_the_verbs_loads_nothing_heavy() -> None:
    code = (
        "import sys; from breakeven.cli.app import run; run(['--help']);"
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (DataError("a.jsonl: no rows;\n give more"), 2, "error: a.jsonl: no rows; give more"),
        (OSError(errno.ENOSPC, "No space left", "x.parquet"), 2, "error: the disk is full (x."),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            2,
            "error: /x: no permission; give an",
        ),
        (
            ModuleNotFoundError("", name="ijson"),
            2,
            "error: ijson is not installed; run: pip install",
        ),
        (KeyboardInterrupt(), 130, "interrupted: the rows written so far are kept; the same"),
    ],
)
def test_what_goes_wrong_is_one_line(
    error: BaseException, code: int, line: str, failing: Install, capsys: Captured
) -> None:
    failing(error)
    assert run(["prepare"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith(line)
    assert shown.count("\n") == 1


def test_debug_shows_the_traceback(failing: Install) -> None:
    failing(DataError("broken"))
    with pytest.raises(DataError):
        run(["prepare"], debug=True)


def test_a_fault_of_ours_is_not_hidden(failing: Install) -> None:
    failing(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run(["prepare"])


def test_the_installed_program_answers() -> None:
    command = [sys.executable, "-m", "breakeven", "--debug", "nonsense"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_openmp_threads_sleep_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAITING:
        monkeypatch.setenv(name, "unset")  # so that monkeypatch restores what main sets
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"  # the person's own choice wins
