"""A path that leads nowhere is told before a model is loaded, whatever recipe or flag names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.cli.app import run
from breakeven.verifier.load import Loaded

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes" / "smollm2-135m"
ARTIFACT = ROOT / "assets" / "smollm2-135m"
NOWHERE = "nowhere/at/all"


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load(*_: object, **__: object) -> Loaded:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("breakeven.verifier.load.load_verifier", load)
    monkeypatch.chdir(tmp_path)


def train(*words: str) -> list[str]:
    return ["train", str(RECIPES / "bonus.yaml"), "-a", str(ARTIFACT), "--out", "out", *words]


DEMO = f"train={{fastmtp: {{recipe: {NOWHERE}.yaml, minutes: 1}}}}"
GRID = f"""
base: {RECIPES / "bonus.yaml"}
reference: a
groups: {{one: {{variants: {{a: {{}}, b: {{settings: [method.adapter={NOWHERE}]}}}}}}}}
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (train(f"method.adapter={NOWHERE}"), f"{NOWHERE}: no drafter.json"),
        (train(f"method.adapter={NOWHERE}", "--dry-run"), f"{NOWHERE}: no drafter.json"),
        (train(f"method.adapter={ARTIFACT}/drafters/fastmtp"), "holds a 'fastmtp' drafter"),
        (["ablate", "grid.yaml", "-a", str(ARTIFACT), "--dry-run"], f"{NOWHERE}: no drafter.json"),
        (["bench", "--artifact", NOWHERE], f"{NOWHERE}: no such artifact"),
        (["bench", "--split", "tset"], "split 'tset'"),
        (["bench", "--calibration", NOWHERE, "--k", "adaptive"], NOWHERE),
        (["bench", "-d", f"fastmtp={NOWHERE}"], f"no folder '{NOWHERE}'"),
        (["audit", "--artifact", NOWHERE], f"{NOWHERE}: no such artifact"),
        (["generate", "Hi", "--calibration", NOWHERE, "--policy", "adaptive"], NOWHERE),
        (["generate", "--file", NOWHERE], f"{NOWHERE}: no such file"),
        (["generate", "Hi", "-d", f"fastmtp={NOWHERE}"], f"no folder '{NOWHERE}'"),
        (["layers", "--drafter", "early-exit", "-a", NOWHERE, "-o", "out"], NOWHERE),
        (["demo", DEMO], f"{NOWHERE}.yaml: not here"),
        (["demo", f"bench.prompts.artifact={NOWHERE}", "--dry-run"], f"{NOWHERE}: not here"),
        (["paper", f"train.fastmtp.recipe={NOWHERE}.yaml"], f"{NOWHERE}.yaml: not here"),
        (["paper", f"artifact.path={NOWHERE}", "--dry-run"], f"{NOWHERE}: not here"),
    ],
)
def test_a_path_that_leads_nowhere(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("grid.yaml").write_text(GRID)
    assert run(words) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not Path("out").exists()


def test_the_shipped_adapter_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(train("--dry-run", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["drafter"] == "peft-bd-fused"
