"""``breakeven ablate`` on a tiny verifier: the result, resuming, refusing, and what is said."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from breakeven.ablation import trials
from breakeven.ablation.grid import Grid
from breakeven.ablation.plan import resolve
from breakeven.cli.app import run
from breakeven.config import load_recipe
from breakeven.data.artifact import write_artifact
from breakeven.decode.request import Completion
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import create
from breakeven.measure.trial import Decoding
from breakeven.train import loop
from breakeven.train.methods import settings_of
from test_artifact import contract
from tiny_chat import tiny_loaded
from training import own_rows

Captured = pytest.CaptureFixture[str]
LOADED = tiny_loaded()
BUDGET = {"train": {"steps": 2, "rows_per_step": 2, "max_minutes": None, "checkpoint_every": 1}}
RECIPE = {
    "drafter": "peft-bd-gated",
    "method": {"masks": 2, "anchors": 4, "rank": 2},
    "evaluate": {"prompts": 2, "max_new_tokens": 8},
}
GROUPS: dict[str, Any] = {
    "block": {
        "about": "How many masks?",
        "variants": {
            "two": {},
            "three": {"settings": ["method.masks=3"], "says": "one mask more"},
            "short": {"of": "three", "k": 2, "says": "a shorter draft"},
        },
    },
}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda name, **_: LOADED)
    monkeypatch.setattr("gc.collect", lambda: 0)  # seconds, with all of transformers imported


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "artifact"
    rows = own_rows(LOADED.verifier, 13)  # type: ignore[arg-type]
    parts = {"train": rows[:4], "validation": rows[4:7], "test": rows[7:]}
    write_artifact(folder, parts, contract({name: len(part) for name, part in parts.items()}))
    return folder


def write_grid(folder: Path, groups: dict[str, Any] | None = None, **changes: Any) -> Path:
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    tree = {
        "base": str(recipe),
        "budget": BUDGET,
        "seeds": [0, 1],
        "reference": "two",
        "decode": {"prompts": 5, "max_new_tokens": 10},
        "groups": groups or GROUPS,
        **changes,
    }
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def words(grid: Path, artifact: Path, out: Path, *more: str) -> list[str]:
    return ["ablate", str(grid), "--artifact", str(artifact), "--out", str(out), *more]


def test_the_result_has_every_variant_and_says_what_the_group_means(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out, grid = tmp_path / "out", write_grid(tmp_path)
    assert run(words(grid, artifact, out)) == 0
    shown = capsys.readouterr().out
    assert "block: How many masks?" in shown
    assert "output: plain decoding's, in 30 answers of 3 variants" in shown
    assert "short (a shorter draft): " in shown
    assert "tokens per round against two" in shown
    found = json.loads((out / "ablation.json").read_text())
    two, three, short = found["variants"]
    assert [v["k"] for v in (two, three, short)] == [3, 4, 2]
    assert two["difference"] is None
    assert three["difference"]["against"] == "two"
    gap = three["acceptance_length"]["value"] - two["acceptance_length"]["value"]
    assert three["difference"]["value"] == pytest.approx(gap)
    assert set(three["difference"]["by_seed"]) == {"0", "1"}
    assert short["of"] == "three"
    assert short["trained"] == three["trained"]
    assert short["accuracy"] is None
    assert 0 <= three["accuracy"] <= 1
    for variant in (two, three, short):
        cost = variant["c_d"] + variant["c_v"] + variant["c_s"]
        length = variant["acceptance_length"]["value"]
        assert variant["speed"]["value"] == pytest.approx(length / cost)
        assert len(variant["survival"]) == variant["k"]
        assert sum(variant["survival"]) * variant["rounds"] == pytest.approx(variant["accepted"])
        assert length == pytest.approx(variant["committed"] / variant["rounds"])
        assert variant["output"] == {"verdict": "equal", "answers": 10, "differing": 0}
    table = (out / "table.md").read_text()
    assert [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| t")] == [
        "| two",
        "| three",
    ]
    for sentence in found["groups"][0]["findings"]:
        assert f"- {sentence}" in table


def test_the_speed_has_an_interval_around_it(artifact: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(words(write_grid(tmp_path), artifact, out, "--only", "two")) == 0
    [two] = json.loads((out / "ablation.json").read_text())["variants"]
    assert two["speed"]["low"] <= two["speed"]["value"] <= two["speed"]["high"]
    assert two["acceptance_length"]["low"] <= two["acceptance_length"]["value"]


def test_only_runs_what_is_asked_for_and_the_table_gathers_what_is_there(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out, grid = tmp_path / "out", write_grid(tmp_path)
    assert run(words(grid, artifact, out, "--only", "short", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [v["name"] for v in found["variants"]] == ["short"]
    assert sorted(p.name for p in (out / "runs").iterdir()) == ["three"]
    assert run(words(grid, artifact, out, "--only", "two")) == 0
    shown = capsys.readouterr().out
    assert "not run yet: three" in shown
    assert "short (a shorter draft): " in shown


def test_a_killed_ablation_goes_on_and_trains_nothing_twice(
    artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, grid = tmp_path / "out", write_grid(tmp_path)
    steps: list[int] = []
    advance, answer = loop.Trainer._advance, Decoding.run

    def counted(self: loop.Trainer, bar: Any) -> None:
        advance(self, bar)
        steps.append(self._counts.step)
        if len(steps) == 4:  # the second run's last step, before its checkpoint
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.Trainer, "_advance", counted)
    assert run(words(grid, artifact, out)) == 130
    assert "finished runs and answers are kept" in capsys.readouterr().err
    assert steps == [1, 2, 1, 2]

    asked: list[str] = []

    def killed(self: Decoding, method: Any, prompt: Any, **more: Any) -> Any:
        if not more:  # not the warming up
            asked.append(prompt.id)
            if len(asked) == 10:  # in the middle of the third prompt
                signal.raise_signal(signal.SIGINT)
        return answer(self, method, prompt, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Decoding, "run", killed)
        assert run(words(grid, artifact, out)) == 130
    assert steps == [1, 2, 1, 2, 2, 1, 2, 1, 2]  # two runs of two variants, one step done again
    kept = trials.read_records(out / "decoded" / "two" / "seed-0.jsonl")
    assert [r.config for r in kept] == ["ar", "two"] * 2
    capsys.readouterr()
    assert run(words(grid, artifact, out)) == 0
    assert len(steps) == 9
    again = trials.read_records(out / "decoded" / "two" / "seed-0.jsonl")
    assert again[:4] == kept
    assert len({r.id for r in again}) == 5
    assert run(words(grid, artifact, out)) == 0
    assert trials.read_records(out / "decoded" / "two" / "seed-0.jsonl") == again


def test_an_output_that_is_not_plain_decodings_ends_in_1(
    artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Decoding.run

    def wrong(self: Decoding, method: Any, prompt: Any, **more: Any) -> Any:
        completion, ledger = answer(self, method, prompt, **more)
        if method.name == "three":
            tokens = [*completion.tokens[:-1], (completion.tokens[-1] + 1) % 256]
            completion = replace(completion, tokens=tokens)
            assert isinstance(completion, Completion)
        return completion, ledger

    monkeypatch.setattr(Decoding, "run", wrong)
    out = tmp_path / "out"
    assert run(words(write_grid(tmp_path), artifact, out)) == 1
    shown = capsys.readouterr().out
    assert "output: NOT plain decoding's for three; its numbers are void" in shown
    by_name = {v["name"]: v for v in json.loads((out / "ablation.json").read_text())["variants"]}
    assert by_name["three"]["output"] == {"verdict": "bug", "answers": 10, "differing": 10}
    assert by_name["two"]["output"]["verdict"] == "equal"


def test_options_reach_the_drafter_and_its_weights_are_those_of_the_other(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def spied(name: str, loaded: Any, path: Path, **options: Any) -> Drafter:
        assert path.parts[-2:] == ("own", "seed-0")
        given.append(options)
        return create(name, loaded, path, **options)

    monkeypatch.setattr(trials, "create", spied)
    variants: dict[str, dict[str, Any]] = {
        "own": {"settings": ["drafter=peft-bd", "method.masks=4"]},
        "shared": {"of": "own", "options": {"cache": "shared"}},
        "right": {"of": "own", "options": {"steps": 2}},
        "wrong": {"of": "own", "options": {"steps": 2, "refill": "all"}},
    }
    grid = {"reference": "own", "seeds": [0]}
    out = tmp_path / "out"
    path = write_grid(tmp_path, {"g": {"variants": variants}}, **grid)
    assert run(words(path, artifact, out)) == 0
    assert given == [v.get("options", {}) for v in variants.values()]
    found = json.loads((out / "ablation.json").read_text())["variants"]
    assert [v["of"] for v in found] == [None, "own", "own", "own"]
    assert {v["drafter"] for v in found} == {"peft-bd"}
    assert [p.name for p in (out / "runs").iterdir()] == ["own"]

    kept = (out / "decoded" / "right" / "seed-0.jsonl").read_text()
    variants["wrong"]["options"] = {"steps": 3, "refill": "all"}
    path = write_grid(tmp_path, {"g": {"variants": variants}}, **grid)
    assert run(words(path, artifact, out)) == 0
    assert given[4:] == [{"steps": 3, "refill": "all"}]  # it alone was decoded again
    assert (out / "decoded" / "right" / "seed-0.jsonl").read_text() == kept


def test_force_starts_the_chosen_variants_anew_and_no_other(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out, grid = tmp_path / "out", write_grid(tmp_path)
    assert run(words(grid, artifact, out)) == 0
    kept = (out / "runs" / "two" / "seed-0" / "provenance.json").read_text()
    groups = json.loads(json.dumps(GROUPS))
    groups["block"]["variants"]["three"]["settings"] = ["method.masks=1"]
    grid = write_grid(tmp_path, groups)
    capsys.readouterr()
    assert run(words(grid, artifact, out)) == 2
    assert "or --only three --force to train it again" in capsys.readouterr().err
    assert run(words(grid, artifact, out, "--only", "three", "--force")) == 0
    assert (out / "runs" / "two" / "seed-0" / "provenance.json").read_text() == kept
    found = {v["name"]: v for v in json.loads((out / "ablation.json").read_text())["variants"]}
    assert found["three"]["k"] == 2
    assert set(found) == {"two", "three"}  # 'short' was decoded with the weights that are gone


def test_a_dry_run_counts_what_is_left_and_changes_nothing(
    artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_chat import chat_model

    model = chat_model(tmp_path / "model")
    monkeypatch.setattr("breakeven.verifier.sources.model_folder", lambda name: model)
    out, grid = tmp_path / "out", write_grid(tmp_path)
    assert run(words(grid, artifact, out, "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert "  two: peft-bd-gated, trainable " in shown
    assert "  short: peft-bd-gated, weights of three" in shown
    assert "4 runs of 2 steps of 2 rows, from 4 training rows; left to train: 4 runs" in shown
    assert "then 30 answers" in shown
    assert "--rehearse" in shown
    assert run(words(grid, artifact, out, "budget.train.max_minutes=5", "--dry-run")) == 0
    assert "training takes at most 20 min" in capsys.readouterr().out
    assert not out.exists()
    assert run(words(grid, artifact, out, "--only", "two")) == 0
    capsys.readouterr()
    assert run(words(grid, artifact, out, "--dry-run", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["runs_to_train"] == [
        "three, seed 0",
        "three, seed 1",
    ]


@pytest.mark.parametrize(
    ("variants", "line"),
    [
        ({"x": {"settings": ["method.maks=1"]}}, "variant 'x': "),
        ({"x": {"settings": ["method.masks=0"]}}, "'method.masks' = 0"),
        ({"x": {"settings": ["train.steps=9"]}}, "'x' sets train.steps, which the grid sets"),
        ({"x": {"settings": ["train.seed=9"]}}, "'x' sets train.seed, which the grid sets"),
        ({"x": {"settings": ["data.rows=3"]}}, "'two' has data.rows = None, 'x' 3; put it into"),
        ({"x": {"settings": ["data.max_tokens=1"]}}, "data.max_tokens = None, 'x' 1"),
        ({"x": {"base": "nowhere.yaml"}}, "variant 'x': nowhere.yaml: not here"),
        ({"x": {"of": "tow", "k": 1}}, "no variant is called 'tow'; did you mean 'two'?"),
        ({"x": {"of": "two"}}, "'x': is 'two' again; give it options, or another k"),
        ({"x": {"of": "two", "settings": ["method.masks=1"]}}, "leave base and settings out"),
        ({"x": {"of": "two", "k": 1}, "y": {"of": "x", "k": 2}}, "'x' is not trained"),
        ({"x": {"of": "two", "options": {"stpes": 2}}}, "'x': peft-bd-gated: option 'stpes' is"),
        ({"x": {"of": "two", "options": {"steps": 9}}}, "variant 'x': steps 9: give 1 to 2"),
        (
            {"x": {"settings": ["drafter=fastmtp", "method={}"], "options": {"steps": 2}}},
            "'fastmtp' has no option 'steps'; allowed: weights",
        ),
        ({"ar": {}}, "'ar' is plain decoding; give the variant another name"),
        ({"x": {"setings": []}}, "unknown key 'groups.block.variants.x.setings'; did you mean"),
        ({"../x": {}}, "should match pattern"),
    ],
)
def test_a_bad_variant_is_refused_before_anything_is_trained(
    variants: dict[str, Any], line: str, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    groups = {"block": {"variants": {"two": {}, **variants}}}
    out = tmp_path / "out"
    assert run(words(write_grid(tmp_path, groups), artifact, out)) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"reference": "tow"}, "reference: no variant is called 'tow'"),
        ({"groups": {}}, "no variant in any group"),
        ({"seeds": []}, "'seeds'"),
        ({"decode": {"prompts": 99}}, "99 prompts asked for (--prompts): this split has 6"),
        ({"decode": {"split": "tset"}}, "no split 'tset'; did you mean 'test'?"),
        ({"budget": {"train": {"stpes": 1}}}, "unknown key 'train.stpes'"),
        ({"budget": {"data": {"max_tokens": 1}}}, "none of 4 rows can be trained on"),
    ],
)
def test_a_bad_grid_is_one_line(
    changes: dict[str, Any], line: str, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out = tmp_path / "out"
    groups = changes.pop("groups", None)
    path = write_grid(tmp_path, **changes)
    if groups is not None:
        path = write_grid(tmp_path, None, groups=groups) if groups else _emptied(path)
    assert run(words(path, artifact, out)) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
    assert not out.exists()


def test_an_unknown_only_and_a_folder_of_something_else(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    out, grid = tmp_path / "out", write_grid(tmp_path)
    assert run(words(grid, artifact, out, "--only", "thre")) == 2
    assert "--only: no variant is called 'thre'; did you mean 'three'?" in capsys.readouterr().err
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    assert run(words(grid, artifact, out, "--force")) == 2
    assert "exists and is not an ablation" in capsys.readouterr().err
    assert (out / "thesis.txt").read_text() == "mine"


def test_the_shipped_grid_varies_what_it_says() -> None:
    root = Path(__file__).parents[1]
    path = root / "recipes" / "smollm2-135m" / "ablation.yaml"
    plan = resolve(load_recipe(Grid, path), str(path), locate=lambda p: root / p)
    methods = {name: settings_of(v.recipe) for name, v in plan.variants.items()}
    changed = {
        "shift": {"labels"},
        "all-hidden": {"mask_ratio"},
        "anywhere": {"starts"},
        "root-in-block": {"anchoring"},
        "linear": {"weighting"},
        "surrogate": {"weighting"},
        "prefix": {"weighting"},
        "paper-gated": set(),
        "gated-4": {"masks"},
        "gated-8": {"masks"},
        "gated-16": {"masks"},
        "no-free-token": {"masks", "labels", "anchoring"},
        "ce": {"soft"},
        "tv": {"soft", "tv"},
        "ce-tv": {"soft", "tv"},
        "gated": set(),
    }
    for name, fields in changed.items():
        base = "paper" if plan.variants[name].against == "paper" else "gated"
        base = name if name == "gated" else base
        ours, theirs = methods[name].model_dump(), methods[base].model_dump()
        assert {f for f in ours if ours[f] != theirs[f]} == fields, name
    reused = {v.name: v.options for v in plan.variants.values() if not v.trained}
    assert reused == {
        "mismatch": {"cache": "shared"},
        "two-steps": {"steps": 2},
        "two-steps-refilled": {"steps": 2, "refill": "all"},
    }
    assert methods.keys() - changed.keys() - reused.keys() == {"paper"}


def _emptied(path: Path) -> Path:
    tree = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**tree, "groups": {}}))
    return path
