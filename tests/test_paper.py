"""``breakeven paper`` on a tiny model: every stage, resume, skip and only, wrong input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from breakeven.cli.app import run
from breakeven.config import load_recipe
from breakeven.cost.oracle import PAPER
from breakeven.measure.records import Record
from breakeven.paper import engine, paths, training
from breakeven.paper.folder import Folder
from breakeven.paper.reading import Split, sentences
from breakeven.paper.recipe import PaperRecipe
from breakeven.paper.speeds import Repeated, block_rate, by_repeat
from breakeven.paper.stages import choose_stages, stages
from breakeven.paper.tables import tables
from chromium import PROGRAM, browser
from test_report_browser import CLIPPED, CROSSING, OVERFLOW
from tiny_chat import chat_model

pytest.importorskip("peft")
ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("paper*.yaml"))
QUICK = (
    "[train.steps=3, train.rows_per_step=2, evaluate.prompts=2, evaluate.max_new_tokens=8, "
    '"evaluate.every=null", '
)
SIZES = "{prompts: 2, max_new_tokens: 8, repeats: 1}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, its artifact and a recipe."""
    folder = tmp_path_factory.mktemp("paper")
    chat_model(folder / "model")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "Tell me of number {i}"}}\n' for i in range(24)))
    call = ["prepare", str(prompts), "--out", str(folder / "artifact")]
    settings = [f"verifier.name={folder / 'model'}", "split.validation=4", "split.test=6"]
    assert run([*call, *settings, "generate.max_new_tokens=16"]) == 0
    shipped = f"{ROOT}/recipes/smollm2-135m"
    (folder / "paper.yaml").write_text(f"""
verifier: {{name: {folder / "model"}}}
artifact: {{path: {folder / "artifact"}}}
train:
  peft-bd: {{recipe: {shipped}/peft_bd_paper.yaml, settings: {QUICK} method.masks=4]}}
  anchored:
    recipe: {shipped}/peft_bd_paper.yaml
    settings: {QUICK} method.masks=4, method.anchoring=root_in_block]
  fastmtp: {{recipe: {shipped}/fastmtp_demo.yaml, settings: {QUICK} method.vocabulary=64]}}
loop: {SIZES}
bench: {{prompts: 2, max_new_tokens: 8, repeats: 3}}
profile: {SIZES}
ablations: {SIZES}
""")
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """One run of every stage."""
    assert run(call(place, place / "out")) == 0
    return place / "out"


def call(place: Path, out: Path, *more: str) -> list[str]:
    return ["paper", str(place / "paper.yaml"), "--out", str(out), *more]


def content(out: Path) -> Any:
    return json.loads((out / "paper.json").read_text())


def test_every_stage_leaves_its_table(whole: Path) -> None:
    found = content(whole)
    by_id = {table["id"]: table for table in found["tables"]}
    assert set(by_id) == {
        "training", "table1", "table2", "table3", "oracle", "ablations", "parts"
    }  # fmt: skip
    assert [row[0] for row in by_id["table1"]["rows"]] == ["plain decoding", "FastMTP", "PEFT-BD"]
    assert by_id["table1"]["rows"][0][1] == "431.36 ± 4.25"
    assert by_id["table3"]["rows"][1][1] == "1,769"
    assert len(by_id["ablations"]["rows"]) == 5
    for table in found["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        assert table["columns"][-1] == "what differs"
    text = (whole / "paper.md").read_text()
    page = (whole / "paper.html").read_text()
    for table in found["tables"]:
        assert f"## {table['title']}" in text
        assert table["title"] in page
    assert "model: " in by_id["table1"]["rows"][0][-1]


def test_both_paths_agree_and_the_output_is_the_verifiers(whole: Path) -> None:
    results = content(whole)["results"]
    for name in ("peft-bd", "anchored"):
        assert results["loop"]["agreement"][name] == {"prompts": 2, "same": 2}
    for path in ("loop", "engine"):
        audits = results["loop"]["paths"][path]["audits"]
        assert {audit["verdict"] for audit in audits} <= {"equal", "near-tie"}


def test_the_bench_is_repeated_and_has_a_deviation(whole: Path) -> None:
    rows = content(whole)["results"]["bench"]["figures"]
    assert [row["speed"]["runs"] for row in rows] == [3, 3, 3]
    for row in rows:
        low, mean, high = (row["speed"][key] for key in ("low", "mean", "high"))
        assert low <= mean <= high


def test_a_finished_run_is_not_repeated(
    place: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def again(*_: Any) -> Any:
        raise AssertionError("a finished stage ran again")

    for module, name in ((engine, "benchmark"), (engine, "ablate"), (engine, "profile"),
                         (paths, "measure_paths"), (training, "train")):  # fmt: skip
        monkeypatch.setattr(module, name, again)
    before = content(whole)["results"]
    assert run(call(place, whole, "--json")) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["results"] == before
    assert streams.err.count("finished before") == 8


def test_a_killed_stage_goes_on_where_it_was(
    place: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = f"peft-bd={whole / 'peft-bd'}"
    words = call(place, tmp_path / "out", "--drafter", drafter)
    words += ["--only", "artifact", "--only", "peft-bd", "--only", "loop"]
    taken: list[str] = []
    real = Record.of

    def dying(name: str, *rest: Any) -> Any:
        taken.append(name)
        if len(taken) == 4:
            raise KeyboardInterrupt
        return real(name, *rest)

    monkeypatch.setattr(Record, "of", dying)
    assert run(words) == 130
    records = tmp_path / "out" / "loop" / "requests.jsonl"
    kept = records.read_text()
    assert kept.count("\n") == 3
    assert Folder(tmp_path / "out").read("loop").result is None  # type: ignore[union-attr]
    assert run(words) == 0
    assert records.read_text().startswith(kept)
    assert records.read_text().count("\n") == 8


def test_only_and_skip_and_a_drafter_that_is_handed_in(
    place: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = call(place, out, "--drafter", f"peft-bd={whole / 'peft-bd'}")
    for stage in ("anchored", "fastmtp", "loop", "profile"):
        words += ["--skip", stage]
    assert run(words) == 0
    found = content(out)
    assert found["results"]["peft-bd"]["handed_in"] == str(whole / "peft-bd")
    assert found["results"]["peft-bd"]["budget"]["steps"] == 3
    assert [row["config"] for row in found["results"]["bench"]["figures"]] == ["ar", "peft-bd"]
    assert "anchored" not in {r["config"] for r in found["results"]["ablations"]["figures"]}
    assert any("Not run: anchored, fastmtp, loop, profile" in note for note in found["notes"])
    assert not (out / "fastmtp").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "bnech"], "--only bnech: no such stage; did you mean 'bench'?"),
        (["--skip", "zzz"], "--skip zzz: no such stage; allowed: "),
        (["--drafter", "peft-bd"], "write NAME=FOLDER"),
        (["--drafter", "ngram=x"], "drafter 'ngram' has no part in it"),
        (["--drafter", "peft-bd=nowhere", "--only", "bench"], "nowhere: no such folder"),
        (["--drafter", "peft-bd=nowhere", "--dry-run"], "nowhere: no such folder"),
        (["--only", "bench"], "the stage 'bench' has no drafter: run the stage peft-bd or fastmtp"),
        (["bench.repeats=2"], "greater than or equal to 3"),
        (["lop.prompts=2"], "unknown key 'lop'; did you mean 'loop'?"),
        (["artifact.path=nowhere"], "nowhere: not here"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str],
    said: str,
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = [word for word in words if "=" in word and not word.startswith("peft-bd")]
    settings = [word for word in settings if not word.startswith("ngram")]
    flags = [word for word in words if word not in settings]
    line = ["paper", str(place / "paper.yaml"), *settings, "--out", str(tmp_path / "out"), *flags]
    assert run(line) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert len([text for text in error.splitlines() if text.startswith("error")]) == 1


def test_a_drafter_of_another_method_is_refused_before_the_plan(
    place: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handed = f"peft-bd={whole / 'fastmtp'}"
    assert run(call(place, tmp_path / "out", "--drafter", handed, "--dry-run")) == 2
    assert "holds a 'fastmtp' drafter, not 'peft-bd'" in capsys.readouterr().err


def test_other_settings_are_not_mixed_into_a_run(
    place: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper", str(place / "paper.yaml"), "profile.prompts=3", "--out", str(whole)]
    assert run([*words, "--only", "profile"]) == 2
    assert "the stage 'profile' was run with other settings" in capsys.readouterr().err
    assert run([*words, "--only", "profile", "--force"]) == 0
    assert content(whole)["results"]["profile"]["prompts"] == 3
    assert run(call(place, whole, "--only", "profile", "--force")) == 0


def test_a_folder_of_something_else_is_left_alone(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert run(call(place, tmp_path, "--force")) == 2
    assert "not a run of `breakeven paper`" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_shipped_recipe_says_its_stages_without_loading_anything(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["paper", str(path), "--out", str(tmp_path / "x"), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    recipe = load_recipe(PaperRecipe, path)
    assert [row["stage"] for row in plan["stages"]] == [stage.name for stage in stages(recipe)]
    unknown = [row["stage"] for row in plan["stages"] if row["minutes"] is None]
    assert unknown == (["artifact"] if recipe.artifact.prepare else [])
    assert all(row["minutes"] is None or row["minutes"] >= 0 for row in plan["stages"])
    assert all((ROOT / section.recipe).is_file() for section in recipe.train.values())
    assert not (tmp_path / "x").exists()


def test_stages_stay_in_order_whatever_the_order_asked_for() -> None:
    recipe = load_recipe(PaperRecipe, RECIPES[-1])
    chosen = choose_stages(recipe, ["bench", "artifact"], [])
    assert [stage.name for stage in chosen] == ["artifact", "bench"]


def test_the_split_is_the_measured_ratio_and_the_papers_loss_is_not_the_algorithms() -> None:
    ours = Split(2.5, 4.0)
    assert ours.ratio == pytest.approx(ours.algorithm * ours.implementation)
    paper = Split(PAPER.peft_bd_committed, PAPER.round_s * PAPER.plain)
    assert paper.ratio == pytest.approx(PAPER.peft_bd / PAPER.plain)
    assert paper.verdict == "implementation"
    assert Split(1.2, 2.0).verdict == "algorithm"
    assert Split(3.0, 2.0).verdict == "it pays"


def test_without_any_stage_there_is_the_papers_side_only() -> None:
    assert tables("x", {}) == []
    assert len(sentences({})) == 1


def record(config: str, repeat: int, **fields: Any) -> Record:
    """A record in which only ``fields`` matter."""
    usual = {
        "id": "p", "category": "chat", "prompt_tokens": 3, "tokens": 5, "finish": "length",
        "prefill_s": 0.1, "decode_s": 1.0, "draft_s": 0.4, "verify_s": 0.5, "other_s": 0.1,
        "rounds": 4, "drafted": 8, "accepted": 0, "committed": 4,
        "accepted_histogram": (4,), "drafted_histogram": (0, 0, 4),
    }  # fmt: skip
    return Record(config, repeat, **{**usual, **fields})


def test_speeds_over_repeats() -> None:
    once = Repeated.of([3.0])
    assert (once.mean, once.runs) == (3.0, 1)
    assert math.isnan(once.sd)
    fast, slow = record("x", 0, tokens=11, decode_s=1.0), record("x", 1, tokens=11, decode_s=2.0)
    assert by_repeat([slow, fast]) == [10.0, 5.0]


def test_block_acceptance_counts_whole_blocks_only() -> None:
    a = record("x", 0, accepted_histogram=(1, 0, 2), drafted_histogram=(0, 1, 3))
    assert block_rate([a]) == pytest.approx(2 / 3)
    assert math.isnan(
        block_rate([record("ar", 0, accepted_histogram=(4,), drafted_histogram=(4,))])
    )


@pytest.mark.skipif(not PROGRAM, reason="no Chromium here")
def test_the_page_is_quiet_offline_and_fits_desktop_and_phone(whole: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        for width, scheme in ((1280, "light"), (390, "dark")):
            tab.open(whole / "paper.html", width, scheme=scheme)
            assert tab.evaluate(OVERFLOW) == 0
            assert tab.evaluate(CLIPPED) == []
            assert tab.evaluate(CROSSING) == []
            assert tab.seen("Runtime.exceptionThrown", "Log.entryAdded") == []
            asked = [event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")]
            assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
