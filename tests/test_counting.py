"""One of a thing is not several of it, wherever a person reads a count."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.ablation.equality import Equality, verdict_line
from breakeven.cli.outcome import forecast_lines
from breakeven.cost.breakeven import alpha_for
from breakeven.cost.calibration import Calibration
from breakeven.data.prompt import Tally
from breakeven.data.sources.jsonl import Jsonl, JsonlSettings
from breakeven.errors import DataError, RecipeError
from breakeven.measure.audit import Finding
from breakeven.measure.forecast import Forecast
from breakeven.report.calibrated import calibrated_lines
from test_calibration import calibration


def short(found: Calibration) -> Calibration:
    """The same with drafts of one token only."""
    lengths = {name: {1: own[min(own)]} for name, own in found.drafters.items()}
    return Calibration(**{**vars(found), "drafters": lengths})


def test_one_draft() -> None:
    _, lines = calibrated_lines(short(calibration()), (0.3,))
    assert any("1 draft can commit" in line.meaning for line in lines)
    assert not any("1 drafts" in line.meaning for line in lines)
    with pytest.raises(RecipeError, match="1 draft can commit 1 to 2 tokens"):
        alpha_for(3.0, 1)


def test_one_broken_line(tmp_path: Path) -> None:
    file, tally = tmp_path / "prompts.jsonl", Tally("jsonl")
    file.write_text('{"prompt": "Hi"}\n{\n')
    source = Jsonl(JsonlSettings(paths=(str(file),)), errors=tmp_path / "broken")
    assert len(list(source.prompts(tally))) == 1
    [note] = tally.notes
    assert "1 line, kept in" in note
    file.write_text("{\n")
    with pytest.raises(DataError, match="broken: 1 line, the first: not JSON"):
        list(source.prompts(tally))


def test_one_prompt_once() -> None:
    shown = "\n".join(forecast_lines(Forecast(("ar",), 1, 1, 1, 2.0, 0.5)))
    assert "on 1 prompt, 1 time each: 1 answer\n" in shown


def test_one_answer_of_one_variant() -> None:
    line = verdict_line({"a": Equality(Finding.EQUAL, 1, 0)})
    assert line == "output: plain decoding's, in 1 answer of 1 variant"
