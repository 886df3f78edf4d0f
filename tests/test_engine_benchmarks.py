"""The engine's benchmarks run and add up; what they measure is not asserted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import batch, conditions, decode, memory
from breakeven.core import Phase
from breakeven.decode.request import Request
from breakeven.drafters.ngram import NGram
from breakeven.measure.configuration import PLAIN
from breakeven.measure.trial import Decoding, Method
from measuring import Row
from tiny import tiny_verifier


def test_decode_accounts_for_every_method() -> None:
    verifier = tiny_verifier(vocab=32)
    prompts = [Row("a", "chat", (1, 2, 3, 1, 2)), Row("b", "chat", (5, 6, 5, 6, 5, 6, 5))]
    methods = {m.name: m for m in (Method(), Method("ngram k=3", NGram(), 3))}
    samples = decode.measure(Decoding(verifier, frozenset(), 12), methods, prompts, repeats=2)
    assert len(samples) == 8
    assert {s.tokens for s in samples} == {11}
    plain, ngram = decode.standings(samples)
    assert (plain.method, plain.ratio, plain.acceptance_length) == (PLAIN, 1.0, 1.0)
    assert ngram.acceptance_length > 1.0
    assert plain.overhead > 0
    assert [t.what for t in decode.targets([plain])] == [f"c_s of {PLAIN}"]
    console = Console(width=100, record=True)
    console.print(decode.table([plain, ngram]))
    assert "ngram k=3" in console.export_text()


def test_time_outside_passes_is_what_no_pass_holds() -> None:
    def sample(name: str, seconds: float, other: float) -> decode.Sample:
        return decode.Sample(name, 0, "a", 10, seconds, 10, other, 0.1)

    plain, other = decode.standings([sample(PLAIN, 1.0, 0.1), sample("x", 0.5, 0.02)])
    assert plain.overhead == pytest.approx(0.1)  # 0.01 s a step of 0.1 s
    assert other.overhead == pytest.approx(0.02)
    assert other.ratio == pytest.approx(2.0)


def test_batch_decodes_all_requests_at_every_size() -> None:
    verifier = tiny_verifier(vocab=32)
    requests = [Request(str(i), tuple(range(1, 3 + i)), 5 + i) for i in range(4)]
    samples = batch.measure(verifier, requests, (1, 2, 4), k=2, rounds=2)
    assert len(samples) == 2 * 2 * 3
    assert {s.tokens for s in samples if s.size == 4} == {5 + 6 + 7 + 8}
    assert batch.ratio(samples, "plain", 1) == 1.0
    console = Console(width=100, record=True)
    console.print(batch.table(samples))
    assert "requests at once" in console.export_text()


def test_memory_of_a_process_is_compared_with_weights_and_cache() -> None:
    options = memory.parse(["--batch", "2"])
    assert (options.batch, options.context) == (2, 512)
    found = {"peak": 1300, "weights": 900, "cache": 100, "libraries": 250}
    assert memory.ratio(found) == 1.3
    assert memory.peak() > 50e6  # this process has PyTorch in it
    console = Console(width=100, record=True)
    console.print(memory.table(found))
    assert "libraries" in console.export_text()


def test_targets_stand_beside_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [
        conditions.Target("a", 4.2, 4.0),
        conditions.Target("b", 0.05, 0.04, at_least=False),
        conditions.Target("c", None, 1.0),
    ]
    assert [t.met for t in targets] == [True, False, None]
    console = Console(width=100, record=True)
    console.print(conditions.goals(targets))
    text = console.export_text()
    assert all(word in text for word in ("met", "missed", "not measured", "≤ 0.04"))
    file = tmp_path / "result.json"
    report = conditions.Report(argparse.Namespace(json=file, model="tiny"), "a busy neighbour")
    report.write({"a": "what a is"}, targets, phases=[Phase.PLAIN])
    assert "a busy neighbour" in capsys.readouterr().out
    content = json.loads(file.read_text())
    assert content["targets"][1]["met"] is False
    assert content["machine"]["cores"] >= 1
