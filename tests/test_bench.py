"""The benchmark: paired, interleaved, resumable, and its tables fit each other."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from breakeven.cli.outcome import show_result
from breakeven.drafters.base import Drafter
from breakeven.drafters.ngram import NGram
from breakeven.drafters.scripted import AntiOracle, Oracle, RandomDrafter, Synthetic
from breakeven.errors import DataError, OutputExistsError, RecipeError
from breakeven.measure import bench as bench_module
from breakeven.measure.answers import Answer
from breakeven.measure.bench import make_methods, run_bench
from breakeven.measure.conclusion import BenchResult
from breakeven.measure.configuration import Configuration, cross
from breakeven.measure.cost_curve import measure_cost_curve
from breakeven.measure.description import Plan
from breakeven.measure.forecast import forecast
from breakeven.measure.machine import machine_facts
from breakeven.measure.performance import in_the_middle, joint_ratios, middle, performance_table
from breakeven.measure.prompts import choose, fingerprint
from breakeven.measure.records import Record, read_records
from breakeven.measure.results import write_csv, write_json
from breakeven.measure.schedule import interleaved
from breakeven.measure.table import bench_table
from breakeven.measure.trial import Decoding
from measuring import VOCAB, Row, decoding, loaded, prompts, script_of

LOADED = loaded()
ROWS = prompts(6)
SCRIPT = script_of(decoding(LOADED.verifier), ROWS)
CONFIGURATIONS = cross(["oracle", "ngram"], [2, 4])
TRIALS = 6 * 5 * 2


def make(configuration: Configuration) -> Drafter:
    drafters: dict[str, Drafter] = {
        "oracle": Oracle(SCRIPT, VOCAB),
        "anti": AntiOracle(SCRIPT, VOCAB),
        "ngram": NGram(),
    }
    return drafters[configuration.drafter]


def run(out: Path, **changes: Any) -> BenchResult:
    settings: dict[str, Any] = {"repeats": 2, "max_new_tokens": 12, "make_drafter": make}
    rows = changes.pop("prompts", ROWS)
    configurations = changes.pop("configurations", CONFIGURATIONS)
    return run_bench(LOADED, rows, configurations, out, **{**settings, **changes})


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> BenchResult:
    return run(tmp_path_factory.mktemp("bench"), command="breakeven bench", artifact="art")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_configuration_meets_every_prompt_in_every_repeat(result: BenchResult) -> None:
    keys = Counter(record.key for record in result.records)
    names = ["ar", *(c.name for c in CONFIGURATIONS)]
    assert set(keys) == {(n, r, p.id) for n in names for r in range(2) for p in ROWS}
    assert set(keys.values()) == {1}
    assert read_records(result.out / "requests.jsonl") == list(result.records)


def test_configurations_of_a_prompt_run_side_by_side_in_changing_order() -> None:
    names = ["ar", "a", "b", "c"]
    order = list(interleaved(names, prompts=5, repeats=3, seed=1))
    blocks = [order[i : i + 4] for i in range(0, len(order), 4)]
    assert all(len({(r, p) for r, p, _ in block}) == 1 for block in blocks)
    assert all(sorted(n for _, _, n in block) == sorted(names) for block in blocks)
    assert len({tuple(n for _, _, n in block) for block in blocks}) > 5
    assert order == list(interleaved(names, prompts=5, repeats=3, seed=1))
    assert order != list(interleaved(names, prompts=5, repeats=3, seed=2))


def test_the_folder_holds_every_file_of_the_contract(result: BenchResult) -> None:
    out = result.out
    described = json.loads((out / "configuration.json").read_text())
    for field in (
        "kind", "breakeven", "command", "verifier", "artifact", "split", "prompts", "categories",
        "repeats", "max_new_tokens", "mode", "machine", "configurations", "definitions",
    ):  # fmt: skip
        assert field in described
    assert set(described["machine"]) == {*machine_facts(), "others_busy"}
    assert [c["name"] for c in described["configurations"]][:2] == ["ar", "oracle-k2"]
    [first, *_] = table(out / "performance.csv")
    for field in (
        "config", "category", "tokens_per_s", "ratio", "ratio_low", "ratio_high",
        "end_to_end_ratio", "c_d", "c_v", "c_s", "break_even", "acceptance_length",
    ):  # fmt: skip
        assert field in first
    acceptance = table(out / "acceptance.csv")
    assert {row["category"] for row in acceptance} == {"all", "chat", "code"}
    assert "survival_4" in acceptance[0]
    assert {row["survival_3"] for row in acceptance if row["config"] == "oracle-k2"} == {""}
    assert {row["drafted_3"] for row in acceptance if row["config"] == "oracle-k2"} == {""}
    for row in acceptance:
        far = [float(row[f"drafted_{i}"]) for i in range(1, 5) if row[f"drafted_{i}"]]
        assert sum(far) * int(row["rounds"]) == pytest.approx(int(row["drafted"]), rel=1e-4)
        assert all(0 <= float(row[f"survival_{i}"]) <= f + 1e-6 for i, f in enumerate(far, 1))
    assert next(int(row["rows"]) for row in table(out / "cost_curve.csv")) == 1
    assert {a["verdict"] for a in json.loads((out / "audit.json").read_text())} == {"equal"}
    assert json.loads((out / "verdict.json").read_text())["sentence"] == result.verdict.sentence
    for c in CONFIGURATIONS:
        assert (out / "profiles" / c.name / "speculation_profile.json").is_file()


def test_ratio_is_income_over_price(result: BenchResult) -> None:
    for row in result.performance:
        assert row.ratio == pytest.approx(row.acceptance_length / row.break_even)
        assert row.break_even == pytest.approx(row.c_d + row.c_v + row.c_s)
    plain = [row for row in result.performance if row.config == "ar"]
    assert all(row.ratio == row.ratio_low == row.ratio_high == 1.0 for row in plain)


def test_the_verdicts_interval_holds_for_the_best_of_all(result: BenchResult) -> None:
    verdict = result.verdict
    [own] = [p for p in result.performance if (p.config, p.category) == (verdict.best, "all")]
    assert verdict.ratio == own.ratio
    assert verdict.ratio_low <= own.ratio_low < own.ratio_high <= verdict.ratio_high
    joint = joint_ratios([result.records], [own.config])
    assert joint[own.config].low == own.ratio_low  # alone it is its own


def test_outputs_are_kept_once_and_all_alike(result: BenchResult) -> None:
    kept = [r for r in result.records if r.token_ids is not None]
    assert {r.repeat for r in kept} == {0}
    for row in ROWS:
        assert len({r.token_ids for r in kept if r.id == row.id}) == 1


def test_the_table_has_a_line_for_each_configuration(result: BenchResult) -> None:
    assert bench_table(result).row_count == 1 + len(CONFIGURATIONS)


def test_a_killed_run_continues_without_loss_or_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, started = Decoding.run, Counter[str]()

    def dying(self: Decoding, *args: Any, **named: Any) -> Any:
        started["trials"] += "max_new_tokens" not in named  # warming up does not count
        if started["trials"] > 20:
            raise KeyboardInterrupt
        return real(self, *args, **named)

    monkeypatch.setattr(Decoding, "run", dying)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    path = tmp_path / "requests.jsonl"
    assert len(read_records(path)) == 20
    path.write_bytes(path.read_bytes()[:-25])  # the last line was being written
    kept = path.read_text().splitlines()[:19]
    started.clear()
    monkeypatch.setattr(Decoding, "run", real)
    with pytest.raises(OutputExistsError, match="--resume"):
        run(tmp_path)
    result = run(tmp_path, resume=True)
    lines = path.read_text().splitlines()
    assert lines[:19] == kept
    assert len(lines) == len({r.key for r in result.records}) == TRIALS
    order = list(interleaved(["ar", *(c.name for c in CONFIGURATIONS)], 6, 2))
    assert [r.key for r in result.records] == [(n, r, ROWS[p].id) for r, p, n in order]


def test_a_finished_run_is_only_concluded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path)
    before = (tmp_path / "cost_curve.csv").read_text()
    monkeypatch.setattr(bench_module, "warm_up", None)  # must not be called
    again = run(tmp_path, resume=True)
    assert list(again.records) == list(first.records)
    assert list(again.performance) == list(first.performance)
    assert (tmp_path / "cost_curve.csv").read_text() == before


class Moody(RandomDrafter):
    """Lays out its rows by itself, otherwise each time that it is made."""

    made = 0

    def __init__(self, groups: int | None = None) -> None:
        super().__init__(VOCAB)
        Moody.made += 1
        self._groups = groups or Moody.made

    @property
    def layout(self) -> dict[str, int]:
        return {"groups": self._groups}


def test_a_run_records_the_layout_and_goes_on_with_it(tmp_path: Path) -> None:
    def moody(c: Configuration) -> Drafter:
        return Moody(**c.options)

    configurations = cross(["moody"], [2, 4])
    first = run(tmp_path, configurations=configurations, make_drafter=moody)
    entries = first.description["configurations"]
    assert [e.get("layout") for e in entries] == [None, {"groups": 1}, {"groups": 1}]
    records = tmp_path / "requests.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:-7]))
    again = run(tmp_path, configurations=configurations, make_drafter=moody, resume=True)
    assert again.description["configurations"] == entries
    assert Moody.made == 2
    over = run(tmp_path, configurations=configurations, make_drafter=moody, resume=True, force=True)
    assert over.description["configurations"][1]["layout"] == {"groups": 3}
    by_hand = [Configuration("moody", 2, options={"groups": 9})]
    found = run(tmp_path / "b", configurations=by_hand, make_drafter=moody).description
    assert found["configurations"][1]["layout"] == {"groups": 9}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_new_tokens": 13}, "max_new_tokens"),
        ({"repeats": 3}, "repeats"),
        ({"seed": 5}, "seed"),
        ({"split": "validation"}, "split"),
        ({"prompts": ROWS[:5]}, "prompts"),
        ({"prompts": prompts(6, seed=9)}, "prompts_sha256"),
        ({"configurations": cross(["ngram"], [2, 4])}, "configurations"),
    ],
)
def test_a_run_with_other_settings_is_not_continued(
    result: BenchResult, change: dict[str, Any], field: str
) -> None:
    before = (result.out / "requests.jsonl").read_bytes()
    with pytest.raises(RecipeError, match=rf"with {field} = .*--force"):
        run(result.out, resume=True, **change)
    assert (result.out / "requests.jsonl").read_bytes() == before


def test_another_verifier_or_machine_is_named(result: BenchResult, tmp_path: Path) -> None:
    for path in ("configuration.json", "requests.jsonl"):
        (tmp_path / path).write_bytes((result.out / path).read_bytes())
    described = json.loads((tmp_path / "configuration.json").read_text())
    described["machine"]["threads"] += 1
    write_json(tmp_path / "configuration.json", described)
    with pytest.raises(RecipeError, match=r"machine\.threads"):
        run(tmp_path, resume=True)
    (tmp_path / "configuration.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        run(tmp_path, resume=True)


def test_answers_of_one_token_leave_the_question_open(tmp_path: Path) -> None:
    result = run(tmp_path, max_new_tokens=1, repeats=1)
    assert result.verdict.verdict is Answer.UNDECIDED
    assert "no decoding to compare" in result.verdict.sentence
    assert json.loads((tmp_path / "verdict.json").read_text())["ratio"] is None


def test_force_starts_over(tmp_path: Path) -> None:
    run(tmp_path)
    result = run(tmp_path, force=True, max_new_tokens=5, repeats=1)
    assert len(result.records) == TRIALS / 2
    assert all(record.tokens == 5 for record in result.records)


def test_bad_requests_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="at least one"):
        run(tmp_path, configurations=[])
    with pytest.raises(RecipeError, match="given 2 times"):
        run(tmp_path, configurations=cross(["ngram", "ngram"], [2]))
    with pytest.raises(RecipeError, match="repeats = 0"):
        run(tmp_path, repeats=0)
    with pytest.raises(RecipeError, match="no prompts"):
        run(tmp_path, prompts=[])
    with pytest.raises(RecipeError, match="k = 0"):
        cross(["ngram"], [0])
    assert not list(tmp_path.iterdir())


def test_one_drafter_from_two_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["oracle=runs/a/best", "oracle=runs/b/best", "ngram=runs/x"]
    result = run(tmp_path, configurations=cross(folders, [2]), repeats=1)
    names = ["oracle[a-best]-k2", "oracle[b-best]-k2", "ngram-k2"]
    described = json.loads((tmp_path / "configuration.json").read_text())
    assert [c["name"] for c in described["configurations"]] == ["ar", *names]
    assert [c["path"] for c in described["configurations"][1:3]] == ["runs/a/best", "runs/b/best"]
    for name in names:
        assert (tmp_path / "profiles" / name / "speculation_profile.json").is_file()
    Console(width=200).print(bench_table(result))
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)


def test_the_same_folder_twice_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"'oracle-k2' is given 2 times"):
        cross(["oracle=runs/a", "oracle=./runs/a/"], [2])


def test_few_prompts_leave_a_warning(
    result: BenchResult, capsys: pytest.CaptureFixture[str]
) -> None:
    described = json.loads((result.out / "configuration.json").read_text())
    assert any("wide intervals, from 6 prompts only" in text for text in described["warnings"])


class Busy:
    """Others on the machine, as busy as said."""

    cores = 0.0


@pytest.mark.parametrize("at_first", [True, False])
def test_a_busy_machine_is_said_once_and_afterwards_as_past(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    at_first: bool,
) -> None:
    monkeypatch.setattr(
        "breakeven.measure.bench.busy_now", lambda: "others at first" if at_first else None
    )
    monkeypatch.setattr("breakeven.measure.bench.Neighbours", Busy)
    monkeypatch.setattr(
        "breakeven.measure.bench.disturbed", lambda cores: f"others: {cores}" if cores else None
    )
    monkeypatch.setattr(Busy, "cores", 1.5)
    found = run(tmp_path, repeats=1)
    told = [line for line in capsys.readouterr().err.splitlines() if "others" in line]
    assert told == [f"warning: {'others at first' if at_first else 'others: 1.5'}"]
    assert [text for text in found.description["warnings"] if "others: " in text] == ["others: 1.5"]
    show_result(found, as_json=False)
    assert "doubt: " not in capsys.readouterr().out, "all are told"

    lines = (tmp_path / "requests.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "requests.jsonl").write_text("".join(lines[:-2]))
    monkeypatch.setattr(Busy, "cores", 0.0)
    again = run(tmp_path, repeats=1, resume=True)
    kept = [text for text in again.description["warnings"] if "others: " in text]
    assert kept == ["others: 1.5"], "of a continued run the worst part counts"
    show_result(run(tmp_path, repeats=1, resume=True), as_json=False)
    assert "doubt: others: 1.5" in capsys.readouterr().out, "nothing measured, so not told before"


def test_draft_lengths_share_one_loaded_drafter() -> None:
    created = []

    def counted(configuration: Configuration) -> Drafter:
        created.append(configuration.name)
        return make(configuration)

    methods = make_methods(CONFIGURATIONS, counted)
    assert created == ["oracle-k2", "ngram-k2"]
    assert [m.name for m in methods] == ["ar", *(c.name for c in CONFIGURATIONS)]


def test_the_forecast_names_what_would_run() -> None:
    plan = Plan(ROWS, CONFIGURATIONS, repeats=3, max_new_tokens=12)
    found = forecast(plan, decoding(LOADED.verifier), make_methods(CONFIGURATIONS, make))
    assert found.trials == 6 * 5 * 3
    assert found.configurations[0] == "ar"
    assert found.seconds > 0
    assert 0.0 < found.detectable < 1.0


def test_the_cost_curve_has_every_width() -> None:
    curve = measure_cost_curve(LOADED.verifier, widths=(1, 2, 4), context=20, rounds=3)
    assert curve.widths == (1, 2, 4)
    assert curve.contexts == (20,)
    assert all(p.low <= p.seconds <= p.high for p in curve.points)


def record(config: str, id: str, decode_s: float, tokens: int = 11, repeat: int = 0) -> Record:
    steps = tokens - 1
    return Record(
        config, repeat, id, "chat", 5, tokens, "length", 1.0, decode_s, 0.0, decode_s, 0.0,
        steps, 0, 0, steps, (steps,), (steps,),
    )  # fmt: skip


def test_the_middle_repeat_counts() -> None:
    repeats = [record("ar", "p", s, repeat=i) for i, s in enumerate([9.0, 1.0, 2.0])]
    assert middle(repeats)["p"] == (repeats[2], repeats[2])
    assert in_the_middle(middle(repeats).values()) == [repeats[2]]


def test_of_an_even_number_of_repeats_both_in_the_middle_count() -> None:
    """The lower of two for plain decoding and the one in the middle of three for the others."""
    odd = [record("x-k2", "p", s, repeat=i) for i, s in enumerate([5.0, 1.0, 3.0])]
    even = [record("ar", "p", s, repeat=i) for i, s in enumerate([9.0, 2.0, 4.0, 1.0])]
    assert in_the_middle(middle(even).values()) == [even[1], even[2]]
    [plain, _, found, _] = performance_table([odd + even], ["ar", "x-k2"])
    assert plain.ratio == 1.0
    assert found.ratio == pytest.approx(1.0)  # 3 s against the mean of 2 s and 4 s
    assert found.ratio == pytest.approx(found.acceptance_length / found.break_even)
    assert found.prompts == 1


def test_speed_and_acceptance_are_of_the_same_repeats(tmp_path: Path) -> None:
    moody = Synthetic(SCRIPT, VOCAB, (0.5, 0.5, 0.5))  # no two repeats are alike
    result = run(tmp_path, configurations=cross(["moody"], [3]), repeats=3,
                 make_drafter=lambda _: moody)  # fmt: skip
    speed = {(row.config, row.category): row.acceptance_length for row in result.performance}
    for row in result.acceptance:
        assert row.acceptance_length == speed[row.config, row.category]
    own = [r for r in result.records if r.config == "moody-k3"]
    assert 0 < result.acceptance[0].rounds < sum(r.rounds for r in own)


def test_outputs_of_other_length_are_compared_per_token() -> None:
    rows = [record("ar", f"p{i}", 10.0) for i in range(6)]
    rows += [record("x-k2", f"p{i}", 10.0, tokens=21) for i in range(6)]  # twice the tokens
    [_, _, found, _] = performance_table([rows], ["ar", "x-k2"])
    assert found.ratio == pytest.approx(2.0)
    assert found.mean_ratio == pytest.approx(2.0)
    assert found.end_to_end_ratio == pytest.approx((1 + 10) / (1 + 5))


def test_an_answer_of_one_token_has_no_ratio() -> None:
    rows = [
        record(c, f"p{i}", 10.0, tokens=1 if i == 0 else 11) for c in ("ar", "x") for i in (0, 1)
    ]
    found = performance_table([rows], ["ar", "x"])[-2]
    assert (found.prompts, found.ratio) == (1, 1.0)


def test_prompts_are_drawn_from_all_categories() -> None:
    rows = [Row(str(i), "chat" if i < 90 else "code", (1, 2)) for i in range(100)]
    picked = choose(rows, 10, seed=3)
    assert Counter(row.category for row in picked) == {"chat": 5, "code": 5}
    assert picked == choose(rows, 10, seed=3)
    assert {r.id for r in picked} != {r.id for r in choose(rows, 10, seed=4)}
    assert len({r.id for r in choose(rows, 100)}) == 100
    with pytest.raises(DataError, match="this split has 100"):
        choose(rows, 101)
    assert fingerprint(picked) != fingerprint(picked[::-1])


def test_unknown_numbers_are_empty_cells_and_null(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", [{"a": 1.0}, {"a": float("nan"), "b": "x,y"}])
    assert (tmp_path / "t.csv").read_text() == 'a,b\n1,\n,"x,y"\n'
    write_json(tmp_path / "t.json", {"a": [float("nan"), float("inf"), 1.5, None, {"b": "ü"}]})
    assert json.loads((tmp_path / "t.json").read_text()) == {
        "a": [None, None, 1.5, None, {"b": "ü"}]
    }
    assert not list(tmp_path.glob(".*"))
