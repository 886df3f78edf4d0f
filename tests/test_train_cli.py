"""``breakeven train`` on a tiny verifier: the folder, resuming, refusing, and what is said."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoConfig

from breakeven.cli.app import run
from breakeven.data.artifact import write_artifact
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import create
from breakeven.errors import DrafterError
from breakeven.train import loop
from breakeven.train.journal import Journal
from breakeven.train.methods import METHODS, load_train_recipe
from breakeven.train.provenance import read_provenance
from test_artifact import contract
from test_train_fastmtp import QWEN3
from tiny_chat import tiny_loaded
from training import own_rows

Captured = pytest.CaptureFixture[str]
LOADED = tiny_loaded()
RECIPES = sorted((Path(__file__).parents[1] / "recipes" / "smollm2-135m").glob("*.yaml"))
SETTINGS = {
    "train": {"steps": 6, "rows_per_step": 2, "checkpoint_every": 2, "log_every": 1},
    "evaluate": {"every": 3, "prompts": 2, "max_new_tokens": 8},
}
OF_METHOD: dict[str, dict[str, Any]] = {
    "peft-bd": {"masks": 4, "anchors": 4, "rank": 2},
    "peft-bd-gated": {"anchors": 4, "rank": 2},
    "peft-bd-fused": {"anchors": 4, "rank": 2},
    "fastmtp": {"start_rows": 2, "vocabulary": 32},
}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda name, **_: LOADED)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "artifact"
    rows = own_rows(LOADED.verifier, 8)  # type: ignore[arg-type]
    parts = {"train": rows[:5], "validation": rows[5:], "test": []}
    write_artifact(folder, parts, contract({name: len(part) for name, part in parts.items()}))
    return folder


@pytest.fixture(params=METHODS)
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name = request.param
    if name == "peft-bd-fused":
        GatedPeftBD.untrained(LOADED.verifier, 4).save(tmp_path / "adapter")
        OF_METHOD[name]["adapter"] = str(tmp_path / "adapter")
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"drafter": name, **SETTINGS, "method": OF_METHOD[name]}))
    return file


def words(recipe: Path, artifact: Path, out: Path, *more: str) -> list[str]:
    return ["train", str(recipe), "--artifact", str(artifact), "--out", str(out), *more]


def test_a_run_leaves_a_drafter_with_its_papers(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    assert run(words(recipe, artifact, out, "train.lr=1e-2")) == 0
    shown = capsys.readouterr().out
    assert "trainable" in shown
    assert "tokens committed / verify passes" in shown
    papers = read_provenance(out)
    assert papers["verifier"]["weights_sha256"] == "a" * 64
    assert papers["steps"] == 6
    assert papers["tokens_seen"] > 0
    assert papers["recipe"]["train"]["lr"] == 1e-2
    assert create(papers["drafter"], LOADED, out).name == papers["drafter"]
    assert len(papers["acceptance"]["survival"]) == 4 if "bd" in papers["drafter"] else 3
    assert load_train_recipe(out / "recipe.yaml").model_dump(mode="json") == papers["recipe"]
    logged = [json.loads(x) for x in (out / "training" / "metrics.jsonl").read_text().splitlines()]
    assert [e["step"] for e in logged if e["split"] == "validation"] == [3, 6]
    assert {"loss", "accuracy", "simulated_acceptance_length", "lr"} <= logged[0].keys()


@pytest.mark.parametrize("minutes", ["null", "600"])
def test_progress_says_once_how_long_it_will_take(
    minutes: str, recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    run(words(recipe, artifact, tmp_path / "out", f"train.max_minutes={minutes}"))
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("training ")]
    assert [line.count(" left") for line in lines] == [1] * len(lines)
    total = "6" if minutes == "null" else "36000"
    assert f": {total}/{total}, " in lines[-1]  # the steps ended first
    assert " 0 s left, step 6, loss" in lines[-1]


def test_a_finished_folder_needs_force(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    assert run(words(recipe, artifact, out)) == 0
    assert run(words(recipe, artifact, out)) == 2
    assert "holds a finished drafter; give another --out, or --force" in capsys.readouterr().err
    assert run(words(recipe, artifact, out, "--force", "--json", "train.steps=2")) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2


def test_ctrl_c_keeps_the_checkpoint_and_the_same_command_goes_on(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    advance = loop.Trainer._advance

    def pressed(self: loop.Trainer, bar: Any) -> None:
        advance(self, bar)
        if self._counts.step == 5:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_advance", pressed)
        assert run(words(recipe, artifact, out)) == 130
    assert (
        "the last checkpoint is kept, if one was due yet; the same command goes on"
        in capsys.readouterr().err
    )
    with pytest.raises(DrafterError, match="the training is not finished"):
        read_provenance(out)
    assert run(words(recipe, artifact, out, "train.lr=0.5")) == 2
    assert "checkpoint of another recipe" in capsys.readouterr().err
    assert run(words(recipe, artifact, out)) == 0
    assert "continued from step 4" in capsys.readouterr().out
    assert read_provenance(out)["steps"] == 6


def test_a_rehearsal_says_how_long_and_keeps_nothing(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    assert run(words(recipe, artifact, out, "--dry-run")) == 0
    assert "the same command with --rehearse" in capsys.readouterr().out
    assert run(words(recipe, artifact, out, "--rehearse")) == 0
    assert "min here; nothing was kept" in capsys.readouterr().out
    assert run(words(recipe, artifact, out, "--rehearse", "--json", "train.steps=100000")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["minutes"] >= 100_000 * found["step_s"] / 60 > 0
    assert not out.exists()


def test_training_itself_says_that_there_are_few_rows(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    long = words(recipe, artifact, tmp_path / "out", "train.steps=2", "evaluate.prompts=200")
    assert run(long) == 0
    assert "warning: only 3 validation rows of the 200" in capsys.readouterr().err


def test_a_folder_of_something_else_is_left_alone(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    assert run(words(recipe, artifact, out)) == 2
    assert "exists and is not a training run" in capsys.readouterr().err
    assert (out / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("drafter: fastmpt", "drafter: 'fastmpt' cannot be trained; did you mean 'fastmtp'?"),
        (
            "train: {lr: 1}",
            "the key 'drafter' is missing; allowed: fastmtp, peft-bd, peft-bd-fused, peft-bd-gated",
        ),
        ("drafter: fastmtp\nmethod: {maks: 1}", "unknown key 'method.maks'"),
        ("drafter: fastmtp\ntrain: {lr: -1}", "'train.lr' = -1"),
        ("drafter: fastmtp\nmethod: {weights: [1, 2]}", "3 steps need 3 weights"),
    ],
)
def test_a_wrong_recipe_is_one_line(
    text: str, line: str, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(text)
    assert run(words(recipe, artifact, tmp_path / "out")) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_missing_things_are_one_line(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(words(tmp_path / "no.yaml", artifact, tmp_path / "out")) == 2
    assert "no such recipe" in capsys.readouterr().err
    assert run(words(RECIPES[-1], tmp_path / "gone", tmp_path / "out")) == 2
    assert "no such artifact" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in RECIPES if "drafter:" in p.read_text()], ids=str)
def test_a_dry_run_says_what_would_be_trained(
    path: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out, more = tmp_path / "out", []
    if path.stem == "bonus":  # by default the shipped adapter, which is of another model
        GatedPeftBD.untrained(LOADED.verifier, 4).save(tmp_path / "adapter")
        more = [f"method.adapter={tmp_path / 'adapter'}"]
    assert run(words(path, artifact, out, "--dry-run", "--json", *more)) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["parameters"].startswith("trainable ")
    assert plan["rows"] == {"train": 5, "validation": 3}
    assert run(words(path, artifact, out, "--dry-run", *more)) == 0
    shown = capsys.readouterr().out
    assert " steps of " in shown
    assert ("minutes" in shown) == (plan["max_minutes"] is not None)
    assert not out.exists()


PAPER_COUNTS = {
    "peft_bd_paper": 10_092_544 + 1024,  # the LoRA, and the mask's input vector
    "fastmtp": 17_831_168,
}


@pytest.mark.parametrize("name", PAPER_COUNTS)
def test_the_papers_protocol_is_a_recipe(
    name: str, artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dry-run with Qwen3-0.6B's configuration on disk: no hub, no weights."""
    AutoConfig.for_model("qwen3", **QWEN3).save_pretrained(tmp_path / "qwen")
    monkeypatch.setattr("breakeven.verifier.sources.model_folder", lambda _: tmp_path / "qwen")
    path = Path(__file__).parents[1] / "recipes" / "qwen3-0.6b" / f"{name}.yaml"
    assert run(words(path, artifact, tmp_path / "out", "--dry-run", "--json")) == 0
    plan = json.loads(capsys.readouterr().out)
    total = 596_049_920 + PAPER_COUNTS[name]
    assert plan["parameters"].startswith(f"trainable {PAPER_COUNTS[name]:,} of {total:,} ")
    assert (plan["steps"], plan["rows_per_step"]) == (10_000, 64)
    assert any("few rows: each of the 5 is seen up to 128000 times" in w for w in plan["warnings"])
    assert any("only 3 validation rows of the 200" in w for w in plan["warnings"])
    assert run(words(path, artifact, tmp_path / "out", "--dry-run")) == 0
    assert "warning: few rows" in capsys.readouterr().out


def test_an_artifact_of_another_verifier_is_refused(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    contract_file = artifact / "contract.json"
    text = contract_file.read_text()
    contract_file.write_text(text.replace("a" * 64, "e" * 64))
    try:
        assert run(words(recipe, artifact, tmp_path / "out")) == 2
    finally:
        contract_file.write_text(text)
    shown = capsys.readouterr().err
    assert "weights" in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("split", ["train", "validation"])
def test_an_empty_split_is_one_line(
    split: str, recipe: Path, tmp_path: Path, capsys: Captured
) -> None:
    rows = own_rows(LOADED.verifier, 4)  # type: ignore[arg-type]
    parts = {"train": rows[:2], "validation": rows[2:], "test": [], split: []}
    counted = {name: len(part) for name, part in parts.items()}
    write_artifact(tmp_path / "data", parts, contract(counted))
    assert run(words(recipe, tmp_path / "data", tmp_path / "out")) == 2
    shown = capsys.readouterr().err
    assert f"split '{split}' is empty; raise split.{split}" in shown
    assert not (tmp_path / "out").exists()


def test_a_tracker_that_is_missing_is_said_before_anything_is_done(
    recipe: Path, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    if importlib.util.find_spec("wandb"):
        pytest.skip("wandb is installed")
    assert run(words(recipe, artifact, tmp_path / "out", "train.trackers=[wandb]")) == 2
    assert "wandb is not installed; run: pip install wandb" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


FAKE_WANDB = """
import json, os

def init(**settings):
    with open(os.environ["FAKE_WANDB"], "a") as file:
        print(json.dumps(["init", settings]), file=file)
    return Run()

class Run:
    def log(self, values, step):
        with open(os.environ["FAKE_WANDB"], "a") as file:
            print(json.dumps(["log", step, values]), file=file)
    def finish(self):
        with open(os.environ["FAKE_WANDB"], "a") as file:
            print(json.dumps(["finish"]), file=file)
"""


def test_wandb_gets_the_numbers_and_a_resumed_run_keeps_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text(FAKE_WANDB)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setenv("FAKE_WANDB", str(tmp_path / "seen.jsonl"))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for start in (0, 1):
        journal = Journal(tmp_path / "out" / "training", start, trackers=("wandb",))
        journal.write(start + 1, split="train", loss=0.5, survival=[0.1], rounds=3)
        journal.close()
    seen = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert [one[0] for one in seen] == ["init", "log", "finish"] * 2
    assert seen[1][1:] == [1, {"train/loss": 0.5}]
    assert (seen[0][1]["name"], seen[0][1]["project"]) == ("out", "mine")
    assert seen[0][1]["id"] == seen[3][1]["id"]
    monkeypatch.delitem(sys.modules, "wandb")
