"""``breakeven bench`` and ``breakeven audit`` on a tiny verifier and a small artifact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.cli.app import run
from breakeven.core import Draft, Finish
from breakeven.data.artifact import Row, write_artifact
from breakeven.data.contract import Contract
from breakeven.drafters.scripted import RandomDrafter
from measuring import VOCAB, loaded, prompts

Captured = pytest.CaptureFixture[str]
LOADED = loaded()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    rows = [Row(p.id, p.category, tuple(p.prompt_ids), (1,), Finish.STOP) for p in prompts(6)]
    who = LOADED.identity
    contract = Contract(
        verifier=who.name, weights_sha256=who.weights_sha256,
        tokenizer_sha256=who.tokenizer_sha256, chat_template_sha256=who.chat_template_sha256,
        max_prompt=512, max_continuation=256, dtype="float64", eos=(0,), seed=0,
        splits={"test": 6}, tokens={"test": 6}, categories={"chat": 3, "code": 3},
        sources={}, libraries={},
    )  # fmt: skip
    write_artifact(folder, {"test": rows}, contract)
    return folder


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda name, **_: LOADED)


def bench(artifact: Path, out: Path, *more: str) -> int:
    return run(
        [
            "bench", "--artifact", str(artifact), "--out", str(out), "--drafter", "ngram",
            "--k", "2,4", "--prompts", "4", "--repeats", "1", "--max-new-tokens", "10", *more,
        ]
    )  # fmt: skip


def audit(artifact: Path, out: Path, *more: str) -> int:
    shared = ["--artifact", str(artifact), "--out", str(out), "--prompts", "3"]
    return run(["audit", *shared, "--max-new-tokens", "16", *more])


def test_bench_ends_with_a_table_and_the_verdict(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert bench(artifact, tmp_path) == 0
    shown = capsys.readouterr()
    assert "ngram-k2" in shown.out
    assert "ngram-k4" in shown.out
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["sentence"] in " ".join(shown.out.split())
    assert "4 prompts give wide intervals" in shown.err
    described = json.loads((tmp_path / "configuration.json").read_text())
    assert described["artifact"] == str(artifact)
    assert described["command"].startswith("breakeven ")


def test_bench_speaks_json(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    assert bench(artifact, tmp_path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"]["verdict"] in ("pays", "does not pay", "undecided")
    assert {row["config"] for row in told["performance"]} == {"ar", "ngram-k2", "ngram-k4"}


def test_a_second_run_needs_a_word(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    assert bench(artifact, tmp_path) == 0
    assert bench(artifact, tmp_path) == 2
    assert "--resume continues it" in capsys.readouterr().err
    assert bench(artifact, tmp_path, "--resume") == 0
    assert bench(artifact, tmp_path, "--force") == 0


def test_a_dry_run_writes_nothing(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    assert bench(artifact, tmp_path / "run", "--dry-run") == 0
    assert "4 prompts, 1 times each: 12 answers" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert bench(artifact, tmp_path / "run", "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trials"] == 12
    assert told["minimum_detectable_effect"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "two"], "write whole numbers"),
        (["--drafter", "ngarm"], "did you mean 'ngram'?"),
        (["--drafter", "peft-bd-gated"], "give its folder"),
        (["--prompts", "40"], "this split has 6"),
        (["--split", "tset"], "did you mean 'test'?"),
    ],
)
def test_mistakes_are_one_line(
    artifact: Path, tmp_path: Path, capsys: Captured, words: list[str], message: str
) -> None:
    assert bench(artifact, tmp_path / "run", *words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_audit_of_a_sound_decoder(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["--drafter", "random", "--drafter", "anti-oracle", "--k", "3"]
    assert audit(artifact, tmp_path, *words) == 0
    shown = capsys.readouterr().out
    assert "random-k3: equal, 48 tokens of 3 answers are plain decoding's own" in shown
    assert "control: 0 of 45 plain steps flip when padded to 4 rows" in shown
    entries = json.loads((tmp_path / "audit.json").read_text())
    assert [(e["config"], e["verdict"]) for e in entries] == [
        ("random-k3", "equal"), ("anti-oracle-k3", "equal"),
    ]  # fmt: skip
    assert audit(artifact, tmp_path, *words) == 2
    assert "--force" in capsys.readouterr().err
    assert audit(artifact, tmp_path, *words, "--force", "--level", "L0", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {entry["level"] for entry in told} == {"L0"}


def test_audit_exit_codes(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    drafter = RandomDrafter(VOCAB)
    monkeypatch.setattr(drafter, "propose", lambda context, k: [Draft(())] * context.batch)
    monkeypatch.setattr("breakeven.drafters.registry.create", lambda *_: drafter)
    assert audit(artifact, tmp_path, "--drafter", "ngram") == 2
    assert "inconclusive, 0 tokens drafted" in capsys.readouterr().out


def test_an_unknown_level_names_the_levels(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert audit(artifact, tmp_path, "--level", "L7") == 2
    assert "L0" in capsys.readouterr().err
