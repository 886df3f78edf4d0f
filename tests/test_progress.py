"""Progress in a log file: plain lines, on standard error, with an estimate."""

from __future__ import annotations

import re
import time

import pytest

from breakeven.progress import Meter, meter


def test_lines_count_from_where_a_resumed_run_stands(capsys: pytest.CaptureFixture[str]) -> None:
    with meter("rows", 10, done=4, every_s=0.0) as progress:
        progress.note("loss 1.5")
        progress.advance(2)
        progress.advance(4)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert shown.out == ""
    assert [re.split(r"[:,] ", line)[1] for line in lines] == ["6/10", "10/10"]
    assert lines[-1].endswith("0 s left, loss 1.5")


def test_a_busy_worker_writes_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with meter("rows", 1000, every_s=60.0) as progress:
        for _ in range(1000):
            progress.advance()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with meter("rows", 2) as progress:
        progress.note("half way")
        progress.advance(2)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "half way" in shown


def test_more_than_the_total_is_shown_as_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    with meter("work", 3, every_s=0.0) as bar:
        bar.advance(5)
    assert "work: 3/3" in capsys.readouterr().err


def test_a_stage_speaks_for_itself_unless_it_is_soon_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with meter("training", 2, every_s=10.0) as bar:
        with bar.stage("validation", 3) as part:
            part.advance(3)
        for _ in range(3):
            now += 6.0
            bar.note("a loss")
            if now == 6.0:
                with bar.stage("validation", 3) as part:
                    now += 20.0
                    part.advance(2)
                    now += 6.0
                    part.advance()
        bar.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "validation: 2/3, 20 s, 10 s left",
        "validation: 3/3, 26 s, 0 s left",
        "training: 2/2, 44 s, 0 s left, a loss",
    ], "the whole contains its part"


def test_a_stage_on_a_terminal_is_a_second_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with meter("training", 2) as bar, bar.stage("validation", 7) as part:
        part.advance(7)
        bar.advance(2)
    shown = capsys.readouterr().err
    assert "2/2" in shown


def test_a_meter_of_nobody_has_stages() -> None:
    with Meter().stage("validation", 2) as part:
        part.advance()
