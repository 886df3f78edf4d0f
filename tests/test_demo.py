"""The whole path on a tiny model: prompts to artifact to drafters to verdict to page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.cli import demo as module
from breakeven.cli.app import run
from breakeven.config import load_recipe
from breakeven.errors import DataError
from tiny_chat import chat_model

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and its artifact."""
    folder = tmp_path_factory.mktemp("demo")
    chat_model(folder / "model")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "Tell me of number {i}"}}\n' for i in range(40)))
    call = ["prepare", str(prompts), "--out", str(folder / "artifact")]
    settings = [f"verifier.name={folder / 'model'}", "split.validation=6", "split.test=8"]
    assert run([*call, *settings, "generate.max_new_tokens=24"]) == 0
    return folder


def call(place: Path, out: Path, *more: str) -> list[str]:
    recipe = place / "demo.yaml"
    quick = "[train.steps=4, train.rows_per_step=2, evaluate.prompts=2, evaluate.max_new_tokens=8]"
    recipe.write_text(f"""
train:
  peft-bd-gated:
    {{recipe: {ROOT}/recipes/smollm2-135m/peft_bd_gated_demo.yaml, minutes: 1, settings: {quick}}}
  fastmtp:
    {{recipe: {ROOT}/recipes/smollm2-135m/fastmtp_demo.yaml, minutes: 1, settings: {quick}}}
bench:
  verifier: {{name: {place / "model"}}}
  prompts: {{artifact: {place / "artifact"}, count: 3}}
  drafters: [{{name: ngram, k: 2}}, {{name: peft-bd-gated, k: [2, 4]}}, {{name: fastmtp, k: 2}}]
  max_new_tokens: 8
  repeats: 1
""")
    return ["demo", "--recipe", str(recipe), "--out", str(out), *more]


def test_the_whole_path_and_a_second_call_that_repeats_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = place / "out"
    assert run(call(place, out)) == 0
    shown = capsys.readouterr().out
    verdict = json.loads((out / "bench" / "verdict.json").read_text())
    assert verdict["sentence"] in shown
    assert "[7/7]" in shown
    assert " … (it goes on; 96 tokens are shown)\n" in shown  # a random model does not stop
    for config in ("ngram-k2", "peft-bd-gated-k2", "peft-bd-gated-k4", "fastmtp-k2"):
        assert f"{config}: " in shown
    assert "<html" in (out / "report.html").read_text()
    trained = (out / "fastmtp" / "provenance.json").stat().st_mtime_ns
    measured = (out / "bench" / "requests.jsonl").read_text()
    assert run(call(place, out, "--json")) == 0
    assert json.loads(capsys.readouterr().out) == verdict
    assert (out / "fastmtp" / "provenance.json").stat().st_mtime_ns == trained
    assert (out / "bench" / "requests.jsonl").read_text() == measured


def test_a_dry_run_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(call(place, place / "dry", "--dry-run")) == 0
    assert "3 held-out prompts 1 time plainly" in capsys.readouterr().out
    assert not (place / "dry").exists()


def test_force_leaves_a_folder_that_is_not_a_demo_alone(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = place / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    assert run(call(place, precious, "--force")) == 2
    assert "not a demo" in capsys.readouterr().err
    assert (precious / "thesis.txt").exists()


def test_the_shipped_recipe_is_a_demo() -> None:
    settings = load_recipe(module.DemoRecipe, ROOT / module.RECIPE)
    assert set(settings.train) == {"peft-bd-gated", "fastmtp"}
    assert all((ROOT / training.recipe).is_file() for training in settings.train.values())


def test_what_ships_is_found_from_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert module.shipped(module.RECIPE) == ROOT / module.RECIPE
    with pytest.raises(DataError, match="project's folder"):
        module.shipped(Path("assets/nothing"))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("bench.drafters=[banana]", "bench.drafters: no drafter is called 'banana'"),
        ("bench.drafters=[ngrm]", "did you mean 'ngram'"),
        ("bench.drafters=[]", "no drafter to measure"),
        ("bench.drafters=[{name: ngram, options: {long: 3}}]", "has no option 'long'"),
    ],
)
def test_a_drafter_nobody_knows_is_said_before_training(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, word: str, said: str
) -> None:
    assert run(["demo", word, "--out", str(tmp_path / "demo")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
