"""The GPU campaign runs everywhere on tiny shapes, keeps what it has, and says what it skips."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gpu_campaign import JSON_FILE, TABLE_FILE, Campaign, Stage, main
from benchmarks.gpu_passes import Row
from benchmarks.gpu_training import program
from benchmarks.pieces import join, split
from breakeven.errors import DataError, OutputExistsError

FACTS = {"machine": {"cpu": "a processor"}, "tiny": True}


def test_all_of_it_on_tiny_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "cpu", "--tiny", "--models", "Qwen3-0.6B", "--out", str(tmp_path)]
    main([*words, "--minutes", "20"])
    content = json.loads((tmp_path / JSON_FILE).read_text())
    stages = content["stages"]
    assert stages["CUDA tests"]["why"] == "needs a CUDA device"
    assert stages["training"]["why"].startswith("no weights were given")
    ran = {name: stage for name, stage in stages.items() if stage["status"] != "skipped"}
    assert {stage["status"] for stage in ran.values()} == {"done"}
    curve = ran["Qwen3-0.6B: cost curve"]["rows"]
    assert {(r["mode"], r["batch"], r["width"]) for r in curve} == {
        (mode, batch, width) for mode in ("eager", "static") for batch in (1, 2) for width in (1, 4)
    }
    passes = ran["Qwen3-0.6B: PEFT-BD passes"]["rows"]
    assert {r["pass"]: r["rows"] for r in passes} == {
        "plain": 1,
        "draft": 4,
        "verify": 4,
        "fused": 16,
    }
    page = (tmp_path / TABLE_FILE).read_text()
    assert page in capsys.readouterr().out
    assert "| whole rounds | fused | 3 | static |" in page
    with pytest.raises(OutputExistsError, match="holds results"):
        main(words)


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--dry-run", "--out", str(tmp_path / "new")])
    assert "at most 25 minutes on cuda" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_what_was_measured_survives_failure_lateness_and_a_kill(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, 1.0, FACTS)

    def breaks() -> Iterator[Row]:
        yield {"seconds": 1.0}
        raise RuntimeError("no such\nkernel")

    campaign.run(Stage("first", breaks))
    campaign._end = 0.0
    campaign.run(Stage("second", breaks))
    stages = json.loads((tmp_path / JSON_FILE).read_text())["stages"]
    assert stages["first"]["rows"] == [{"seconds": 1.0}]
    assert (stages["first"]["status"], stages["first"]["why"]) == (
        "failed",
        "RuntimeError: no such kernel",
    )
    assert (stages["second"]["status"], stages["second"]["why"]) == ("skipped", "the time is over")

    late = Campaign(tmp_path, 1.0, FACTS)

    def killed() -> Iterator[Row]:
        yield {"seconds": 2.0}
        late._saved = 0.0
        yield {"seconds": 3.0}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        late.run(Stage("third", killed))
    third = json.loads((tmp_path / JSON_FILE).read_text())["stages"]["third"]
    assert third["status"] == "running"
    assert {"seconds": 3.0} in third["rows"]


def test_a_file_travels_in_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(range(256)) * 41)
    main(["--split", str(file), "--piece-mb", "0.004", "--out", str(tmp_path / "pieces")])
    pieces = [Path(line) for line in capsys.readouterr().out.split()]
    assert [piece.stat().st_size for piece in pieces] == [4000, 4000, 2496]
    whole = join(pieces[::-1], tmp_path / "whole")
    assert whole.name == "model.gguf"
    assert whole.read_bytes() == file.read_bytes()
    with pytest.raises(DataError, match=r"2 pieces of model\.gguf: not the whole file"):
        join(pieces[1:], tmp_path / "whole")
    with pytest.raises(DataError, match="no such piece"):
        join([tmp_path / "nothing"], tmp_path)
    with pytest.raises(DataError, match="no such file"):
        split(tmp_path / "nothing", tmp_path, 1)


def test_a_program_that_takes_too_long_is_ended() -> None:
    code, _ = program(["timeit", "-n", "1", "-r", "1", "import time; time.sleep(30)"], 1.0)
    assert code is None
    code, output = program(["timeit", "-n", "1", "-r", "1", "pass"], 60.0)
    assert code == 0
    assert "loop" in output
