"""``breakeven verdict``: read from files, answered in a sentence and an exit code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from breakeven.cli.app import run
from breakeven.errors import DataError
from breakeven.measure.doubts import DOUBT
from breakeven.measure.judgement import judge_files, whole_records
from breakeven.measure.performance import performance_table
from breakeven.measure.records import Record
from breakeven.measure.results import write_csv, write_json
from breakeven.report.run import load_run

Shown = pytest.CaptureFixture[str]


def record(config: str, repeat: int, id: str, seconds: float) -> Record:
    """An answer of 11 tokens; a drafting round commits two."""
    drafting = config != "ar"
    rounds = 5 if drafting else 10
    return Record(
        config=config, repeat=repeat, id=id, category="chat", prompt_tokens=4, tokens=11,
        finish="length", prefill_s=0.01, decode_s=seconds, draft_s=0.1 * seconds,
        verify_s=0.8 * seconds, other_s=0.1 * seconds, rounds=rounds, drafted=4 * drafting * 5,
        accepted=5 * drafting, committed=10, accepted_histogram=(0, 5) if drafting else (10,),
        drafted_histogram=(0, 0, 0, 0, 5) if drafting else (10,),
    )  # fmt: skip


def write(folder: Path, ratio: Callable[[int], float], prompts: int = 12, **changes: Any) -> Path:
    """A run in which drafting is ``ratio(i)`` times as fast on prompt i."""
    folder.mkdir(parents=True)
    description: dict[str, Any] = {
        "verifier": {"name": "tiny", "weights_sha256": "a" * 64}, "split": "test",
        "prompts": prompts, "prompts_sha256": "b" * 16, "max_new_tokens": 11, "mode": "native",
        "dtype": "float32", "warnings": ["others were busy"],
        "machine": {"cpu": "x", "threads": 2, "gpu": None},
    }  # fmt: skip
    write_json(folder / "configuration.json", description | changes)
    lines = [
        record(config, repeat, f"p{i}", (1 + 0.01 * repeat) / (ratio(i) if config != "ar" else 1))
        for repeat in range(2)
        for i in range(prompts)
        for config in ("ar", "x-k4")
    ]
    text = "".join(line.to_line() + "\n" for line in lines)
    (folder / "requests.jsonl").write_text(text)
    audit = {"config": "x-k4", "verdict": "equal", "requests": prompts, "differing": 0,
             "tokens": 99, "divergences": [], "control": None}  # fmt: skip
    write_json(folder / "audit.json", [audit])
    return folder


@pytest.mark.parametrize(
    ("ratio", "code", "start"),
    [
        (lambda i: 1.3 + 0.01 * i, 0, "It pays: x-k4 is 35 % faster"),
        (lambda i: 0.7 + 0.01 * i, 1, "It does not pay"),
        (lambda i: 0.9 + 0.25 * (i % 2), 3, "Undecided"),
    ],
)
def test_the_exit_code_answers(
    capsys: Shown, tmp_path: Path, ratio: Callable[[int], float], code: int, start: str
) -> None:
    folder = write(tmp_path / "run", ratio)
    assert run(["verdict", str(folder)]) == code
    shown = capsys.readouterr().out
    assert shown.startswith(start)
    for part in ("x-k4", "AL", "needs", "· ", "doubt: others were busy"):
        assert part in shown


def test_for_machines(capsys: Shown, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda i: 1.3)
    assert run(["verdict", str(folder / "requests.jsonl"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"]["best"] == "x-k4"
    assert answer["verdict"]["ratio"] == pytest.approx(1.3)
    assert [p["config"] for p in answer["performance"]] == ["ar", "x-k4"]


def test_rows_stand_in_the_order_of_the_benchmark(tmp_path: Path) -> None:
    """Records come shuffled; the description has the order of the bench's table."""
    folder = write(tmp_path / "run", lambda i: 1.3)
    lines = [record(c, 0, f"p{i}", 1.0) for i in range(3) for c in ("b-k4", "ar", "a-k2", "x-k4")]
    (folder / "requests.jsonl").write_text("".join(line.to_line() + "\n" for line in lines))
    description = json.loads((folder / "configuration.json").read_text())
    names = [{"name": name} for name in ("ar", "x-k4", "a-k2")]
    write_json(folder / "configuration.json", {**description, "configurations": names})
    found = [row.config for row in judge_files([folder]).performance]
    assert found == ["ar", "x-k4", "a-k2", "b-k4"]


def test_two_prompts_are_undecided_in_plain_words(capsys: Shown, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda i: (0.4, 2.5)[i], prompts=2)
    assert run(["verdict", str(folder)]) == 3
    sentence = judge_files([folder]).verdict.sentence
    assert "on 2 prompts, which are too few to be sure of anything" in sentence
    assert "times as fast" not in sentence.split("prompts")[1]


def test_a_wrong_answer_is_not_fast(capsys: Shown, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda i: 2.0)
    [audit] = json.loads((folder / "audit.json").read_text())
    wrong = {"id": "p1", "position": 3, "expected": 5, "got": 6, "gap": 2.0, "class": "bug"}
    write_json(folder / "audit.json", [audit | {"verdict": "bug", "divergences": [wrong]}])
    assert run(["verdict", str(folder)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Not usable: x-k4 gives answers that are not tiny's own")
    assert "at position 3 of 'p1'" in shown


def test_a_cut_file_is_read_up_to_the_cut(capsys: Shown, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda i: 1.3)
    file = folder / "requests.jsonl"
    content = file.read_text()
    file.write_text(content[: len(content) * 3 // 4])
    records, [note] = whole_records(file)
    assert "is cut off at line" in note
    assert 24 <= len(records) < 48
    assert run(["verdict", str(folder)]) == 0
    assert "cut off" in " ".join(capsys.readouterr().out.split())


def test_prompts_that_one_configuration_lacks_count_for_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda i: 1.3)
    file = folder / "requests.jsonl"
    kept = [line for line in file.read_text().splitlines() if '"id":"p3"' not in line]
    file.write_text("\n".join([*kept, record("ar", 0, "p3", 99.0).to_line()]) + "\n")
    found = judge_files([folder])
    assert found.verdict.ratio == pytest.approx(1.3)
    assert {row.prompts for row in found.performance} == {11}


def test_a_doubt_of_one_run_names_it(tmp_path: Path) -> None:
    shared, drift = "wide intervals", "plain steps were {} % faster at the end than at first"
    runs = [
        write(tmp_path / name / "bench", lambda i: 1.3, warnings=[shared, drift.format(size)])
        for name, size in (("one", 7), ("two", 9))
    ]
    doubts = [r for r in judge_files(runs).verdict.reasons if r.startswith(DOUBT)]
    places = [run.resolve() for run in runs]
    assert doubts == [
        f"{DOUBT}{shared}",
        f"{DOUBT}{places[0]}: {drift.format(7)}",
        f"{DOUBT}{places[1]}: {drift.format(9)}",
    ]
    other = write(tmp_path / "other", lambda i: 1.3, warnings=[shared])
    doubts = [r for r in judge_files([runs[0], other]).verdict.reasons if r.startswith(DOUBT)]
    assert doubts == [f"{DOUBT}{shared}", f"{DOUBT}bench: {drift.format(7)}"]


def test_runs_of_the_same_prompts_are_joined(tmp_path: Path) -> None:
    runs = [write(tmp_path / name, lambda i: 1.3) for name in ("a", "b")]
    assert judge_files(runs).verdict.ratio == pytest.approx(1.3)
    assert judge_files([runs[0], runs[0]]).verdict == judge_files(runs[:1]).verdict


def lines(folder: Path, times: dict[str, list[float]], prompts: int = 12) -> Path:
    """The folder with other records: each configuration's seconds by repeat, more on later prompts.

    Its tables are those that ``breakeven bench`` would write.
    """
    rows = [
        record(config, repeat, f"p{i}", seconds * (1 + 0.1 * i))
        for i in range(prompts)
        for config, repeats in times.items()
        for repeat, seconds in enumerate(repeats)
    ]
    (folder / "requests.jsonl").write_text("".join(row.to_line() + "\n" for row in rows))
    write_csv(folder / "performance.csv", [p.row() for p in performance_table([rows], times)])
    return folder


def test_a_configuration_is_compared_with_plain_decoding_of_its_own_run(tmp_path: Path) -> None:
    """The machine was slower in the second run; its configuration gains nothing by the first."""
    first, second = (write(tmp_path / name, lambda i: 1.3) for name in ("a", "b"))
    lines(first, {"ar": [1.0, 1.1, 1.2], "a-k2": [0.9, 1.0, 1.1]})
    lines(second, {"ar": [2.0, 2.2, 2.4], "b-k2": [2.1, 2.2, 2.3]})
    found = {row.config: row for row in judge_files([first, second]).performance}
    assert found["a-k2"].ratio == pytest.approx(1.1)
    assert found["b-k2"].ratio == pytest.approx(1.0)
    reported = {
        p.config: p.ratio
        for folder in (first, second)
        for p in load_run(folder).performance
        if p.category == "all"
    }
    assert {c: row.ratio for c, row in found.items()} == pytest.approx(reported, rel=1e-4)
    for row in found.values():
        assert row.ratio == pytest.approx(row.acceptance_length / row.break_even)
        assert row.prompts == 12


def test_a_configuration_of_two_runs_is_paired_within_each(tmp_path: Path) -> None:
    """Twice as fast in both, whatever the machine; three repeats against two favour nobody."""
    first, second = (write(tmp_path / name, lambda i: 1.3) for name in ("a", "b"))
    lines(first, {"ar": [1.0, 2.0, 4.0], "x-k4": [1.0, 3.0]})
    lines(second, {"ar": [10.0, 20.0, 30.0, 60.0], "x-k4": [12.5], "y-k4": [25.0]})
    joint = judge_files([first, second])
    found = {row.config: row for row in joint.performance}
    assert found["x-k4"].ratio == pytest.approx((2.0 + 25.0) / (2.0 + 12.5))
    assert found["y-k4"].ratio == pytest.approx(1.0)
    assert found["x-k4"].prompts == 12
    again = {row.config: row.ratio for row in judge_files([second, first]).performance}
    assert again == pytest.approx({c: row.ratio for c, row in found.items()})


def test_a_bug_of_either_run_counts(tmp_path: Path) -> None:
    runs = [write(tmp_path / name, lambda i: 1.3) for name in ("a", "b")]
    [audit] = json.loads((runs[0] / "audit.json").read_text())
    wrong = {"id": "p1", "position": 3, "expected": 5, "got": 6, "gap": 2.0, "class": "bug"}
    write_json(runs[0] / "audit.json", [audit | {"verdict": "bug", "divergences": [wrong]}])
    for order in (runs, runs[::-1]):
        assert judge_files(order).outputs == {"x-k4": "bug"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"prompts_sha256": "c" * 16}, "prompts_sha256"),
        ({"mode": "eager"}, "mode"),
        ({"verifier": {"name": "other", "weights_sha256": "d"}}, "verifier.name"),
        ({"machine": {"cpu": "y", "threads": 2, "gpu": None}}, "machine.cpu"),
    ],
)
def test_unlike_runs_are_not_compared(
    capsys: Shown, tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    first = write(tmp_path / "a", lambda i: 1.3)
    second = write(tmp_path / "b", lambda i: 1.3, **changes)
    assert run(["verdict", str(first), str(second)]) == 2
    error = capsys.readouterr().err
    assert f"cannot be compared: {field} differs" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("spoil", ["requests.jsonl", "configuration.json"])
def test_what_is_no_run_is_refused(tmp_path: Path, spoil: str) -> None:
    folder = write(tmp_path / "a", lambda i: 1.3)
    (folder / spoil).unlink()
    with pytest.raises(DataError, match=spoil):
        judge_files([folder])


def test_nothing_measured_with_a_drafter_is_no_verdict(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", lambda i: 1.3)
    (folder / "requests.jsonl").write_text(record("ar", 0, "p0", 1.0).to_line() + "\n")
    with pytest.raises(DataError, match="both plainly and with a drafter"):
        judge_files([folder])


def test_a_broken_audit_is_a_note(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", lambda i: 1.3)
    (folder / "audit.json").write_text("{")
    found = judge_files([folder])
    assert found.outputs == {"x-k4": "not audited"}
    assert any("audit.json" in note for note in found.notes)


WRONG = (None, "x", -1, 1e400, float("nan"), [{}])


@pytest.mark.parametrize("verb", ["verdict", "report"])
@pytest.mark.parametrize("name", ["requests.jsonl", "configuration.json", "audit.json"])
def test_no_value_of_any_field_ends_in_a_traceback(
    name: str, verb: str, capsys: Shown, tmp_path: Path
) -> None:
    """Every field of every entry replaced by everything it should not be, and left out."""
    folder = write(tmp_path / "run", lambda i: 1.3, prompts=3)
    text = (folder / name).read_text()
    many = name.endswith(".jsonl")
    lines = text.splitlines() if many else [text]
    whole = [json.loads(line) for line in lines]
    first = whole[0][0] if isinstance(whole[0], list) else whole[0]
    for field, value in itertools.product(first, (*WRONG, ...)):
        changed = [
            [_with(e, field, value) for e in entry]
            if isinstance(entry, list)
            else _with(entry, field, value)
            for entry in whole
        ]
        (folder / name).write_text("".join(json.dumps(entry) + "\n" for entry in changed))
        code = run([verb, str(folder), *(["--force"] if verb == "report" else [])])
        shown = capsys.readouterr()
        assert code in (0, 1, 2, 3), (field, value)
        assert "yields nan" not in shown.out, (field, value)
        if code == 2:
            assert shown.err.startswith("error: "), (field, value)
            assert shown.err.count("\n") == 1, (field, value)


def _with(entry: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    """The entry with a field changed, or without it."""
    rest = {name: old for name, old in entry.items() if name != field}
    return rest if value is ... else {**rest, field: value}


def test_a_line_given_twice_counts_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda i: 1.3)
    file = folder / "requests.jsonl"
    once, _ = whole_records(file)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, lines[5]]) + "\n")
    again, [note] = whole_records(file)
    assert again == once
    assert f"line {len(lines) + 1} repeats an earlier one" in note


def test_a_field_that_a_later_version_adds_is_ignored(tmp_path: Path) -> None:
    line = record("ar", 0, "p1", 1.0).to_line()
    assert Record.from_line(line[:-1] + ', "later": 1}') == Record.from_line(line)
