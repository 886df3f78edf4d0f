"""``breakeven bench`` and ``breakeven audit`` on a tiny verifier and a small artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breakeven.cli.app import run
from breakeven.cli.trial import affordable
from breakeven.config import load_recipe, write_recipe
from breakeven.core import Draft
from breakeven.cost.calibration import Calibration
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import create
from breakeven.drafters.scripted import RandomDrafter
from breakeven.errors import RecipeError
from breakeven.measure.bench import make_methods, registered
from breakeven.measure.recipe import AuditRecipe, BenchRecipe, PromptSection
from breakeven.verifier.load import Loaded
from measuring import VOCAB, loaded, prompts, small_artifact
from test_calibration import calibration

Captured = pytest.CaptureFixture[str]
LOADED = loaded()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_artifact(tmp_path_factory.mktemp("artifact"), prompts(6), LOADED.identity)


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
    artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/breakeven", "bench", "--k", "2,4"])
    assert bench(artifact, tmp_path) == 0
    shown = capsys.readouterr()
    assert "ngram-k2" in shown.out
    assert "ngram-k4" in shown.out
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["sentence"] in " ".join(shown.out.split())
    assert shown.err.count("wide intervals, from 4 prompts only") == 1
    assert "wide intervals" not in shown.out, "said before, as a warning"
    assert any("doubt: wide intervals" in reason for reason in verdict["reasons"])
    described = json.loads((tmp_path / "configuration.json").read_text())
    assert described["artifact"] == str(artifact)
    assert described["command"] == "breakeven bench --k 2,4"


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


def test_prices_that_no_configuration_reads_are_named(
    artifact: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calibration.json"
    calibration().write(path)
    monkeypatch.setattr(
        "breakeven.measure.calibration.prices.prices_for", lambda _, path: Calibration.read(path)
    )
    words = ("--dry-run", "--calibration", str(path))
    assert bench(artifact, tmp_path / "run", *words) == 0
    assert f"warning: the prices of {path} are not read" in capsys.readouterr().err
    assert bench(artifact, tmp_path / "run", *words, "--k", "2,adaptive") == 0
    assert "not read" not in capsys.readouterr().err


def test_a_dry_run_writes_nothing(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    assert bench(artifact, tmp_path / "run", "--dry-run") == 0
    assert "4 prompts, 1 time each: 12 answers" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert bench(artifact, tmp_path / "run", "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trials"] == 12
    assert told["minimum_detectable_effect"] > 0


def test_the_recipe_beside_a_run_repeats_it(artifact: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert bench(artifact, first, "--seed", "3") == 0
    recipe = load_recipe(BenchRecipe, first / "recipe.yaml")
    assert recipe.prompts.model_dump() == {"artifact": artifact, "split": "test", "count": 4}
    assert [c.name for c in recipe.configurations] == ["ngram-k2", "ngram-k4"]
    assert run(["bench", str(first / "recipe.yaml"), "--out", str(second)]) == 0
    same = ("prompts_sha256", "seed", "repeats", "max_new_tokens", "split", "configurations")
    found = [json.loads((out / "configuration.json").read_text()) for out in (first, second)]
    assert [found[0][field] for field in same] == [found[1][field] for field in same]
    assert (first / "recipe.yaml").read_text() == (second / "recipe.yaml").read_text()


def forecast_of(*words: str, capsys: Captured) -> dict[str, Any]:
    """What a dry run says."""
    assert run(["bench", *words, "--dry-run", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_flags_win_over_settings_and_settings_over_the_file(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text(
        f"prompts: {{artifact: {artifact}, count: 2}}\nrepeats: 2\nmax_new_tokens: 4\n"
        "drafters: [{name: ngram, k: [3]}]\nk: [1, 2]\n"
    )
    plain = forecast_of(str(file), capsys=capsys)
    assert (plain["prompts"], plain["repeats"]) == (2, 2)
    assert plain["configurations"] == ["ar", "ngram-k3"]
    found = forecast_of(
        str(file), "prompts.count=3", "repeats=5", "--repeats", "1", "--k", "2,4", capsys=capsys
    )
    assert (found["prompts"], found["repeats"]) == (3, 1)
    assert found["configurations"] == ["ar", "ngram-k2", "ngram-k4"]
    found = forecast_of(str(file), "drafters=[ngram]", capsys=capsys)
    assert found["configurations"] == ["ar", "ngram-k1", "ngram-k2"]
    found = forecast_of(str(file), "k=5", "--drafter", "ngram", capsys=capsys)
    assert found["configurations"] == ["ar", "ngram-k5"]


def test_a_recipe_takes_odd_names_as_they_are(tmp_path: Path) -> None:
    odd = Path("1e3") / "ü: [x] # y"
    words = [{"name": "fastmtp", "path": odd}, "peft-bd-gated=runs/a=b"]
    recipe = BenchRecipe.model_validate({"drafters": words, "k": "2,4"})
    write_recipe(recipe, tmp_path / "r.yaml")
    assert load_recipe(BenchRecipe, tmp_path / "r.yaml") == recipe
    assert [c.path for c in recipe.configurations[::2]] == [odd, Path("runs/a=b")]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("drafters=[{nmae: ngram}]", "unknown key 'drafters.0.nmae'; did you mean 'name'?"),
        ("drafters=['=runs/a']", "write NAME or NAME=PATH"),
        ("drafters=[]", "no drafter to measure"),
        ("k=0", "greater than 0"),
        ("k=two", "write whole numbers"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(setting: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        assert load_recipe(BenchRecipe, overrides=[setting]).configurations
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_recipe_beside_an_audit_repeats_it(artifact: Path, tmp_path: Path) -> None:
    words = ["--drafter", "random", "--k", "3", "--level", "L1"]
    assert audit(artifact, tmp_path, *words) == 0
    recipe = load_recipe(AuditRecipe, tmp_path / "audit.yaml")
    assert (recipe.level, recipe.prompts.count) == ("L1", 3)
    before = (tmp_path / "audit.json").read_text()
    assert run(["audit", str(tmp_path / "audit.yaml"), "--out", str(tmp_path), "--force"]) == 0
    assert (tmp_path / "audit.json").read_text() == before


def test_an_audit_takes_its_own_number_of_prompts_whatever_else_is_set() -> None:
    assert load_recipe(AuditRecipe, overrides=["prompts.artifact=x"]).prompts.count == 8
    assert load_recipe(BenchRecipe, overrides=["prompts.artifact=x"]).prompts.count == 24


def test_a_default_takes_no_more_prompts_than_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    usual, asked = PromptSection(split="test"), PromptSection(split="test", count=24)
    assert (affordable(usual, 10), affordable(usual, 50), affordable(asked, 10)) == (10, 24, 24)
    assert "'test' has 10 prompts, fewer than the usual 24" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "two"], "write whole numbers"),
        (["--drafter", "ngarm"], "did you mean 'ngram'?"),
        (["--drafter", "peft-bd-gated"], "give its folder"),
        (["--prompts", "40"], "this split has 6"),
        (["--split", "tset"], "did you mean 'test'?"),
        (["prompts.cuont=3"], "unknown key 'prompts.cuont'; did you mean 'count'?"),
        (["absent.yaml"], "absent.yaml: no such recipe"),
        (["ngram"], "write section.field=value"),
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
    monkeypatch.setattr("breakeven.drafters.registry.create", lambda *_, **__: drafter)
    assert audit(artifact, tmp_path, "--drafter", "ngram") == 2
    assert "inconclusive, 0 tokens drafted" in capsys.readouterr().out


def test_an_unknown_level_names_the_levels(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert audit(artifact, tmp_path, "--level", "L7") == 2
    assert "L0" in capsys.readouterr().err


def test_options_of_a_drafter_reach_it_and_stand_in_every_file(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def spied(name: str, loaded: Loaded, path: Path | None, **options: Any) -> Drafter:
        given.append({name: options})
        return create(name, loaded, path, **options)

    monkeypatch.setattr("breakeven.drafters.registry.create", spied)
    more = ["--drafter", "suffix", "--drafter-option", "ngram.longest=5", "--k", "2"]
    assert bench(artifact, tmp_path, *more) == 0
    assert given == [{"ngram": {"longest": 5}}, {"suffix": {}}]
    described = json.loads((tmp_path / "configuration.json").read_text())["configurations"]
    assert [c["name"] for c in described] == ["ar", "ngram[longest=5]-k2", "suffix-k2"]
    assert described[1]["options"] == {"longest": 5}
    recipe = load_recipe(BenchRecipe, tmp_path / "recipe.yaml")
    assert [d.options for d in recipe.drafters] == [{"longest": 5}, {}]
    assert (tmp_path / "profiles" / "ngram[longest=5]-k2").is_dir()


def test_one_drafter_with_other_options_is_another_configuration(artifact: Path) -> None:
    recipe = BenchRecipe.model_validate(
        {"drafters": [{"name": "ngram", "options": {"longest": n}} for n in (2, 5)], "k": 3}
    )
    names = [c.name for c in recipe.configurations]
    assert names == ["ngram[longest=2]-k3", "ngram[longest=5]-k3"]
    made = make_methods(recipe.configurations, registered(LOADED))
    assert made[1].drafter is not made[2].drafter


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["longset=5"], "'ngram' has no option 'longset'; did you mean 'longest'?"),
        (["longest=many"], "'ngram': option longest = many: give a whole number"),
        (["longest=0"], "give 1 <= shortest <= longest <= 32"),
        (["longest"], "--drafter-option 'longest': write OPTION=VALUE"),
        (["ngrm.longest=5"], "no drafter 'ngrm' here; did you mean 'ngram'?"),
        (["x=1", "-d", "suffix"], "of which drafter (ngram, suffix)? write DRAFTER.OPTION=VALUE"),
    ],
)
def test_a_bad_option_of_a_drafter_is_one_line(
    words: list[str], line: str, artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert bench(artifact, tmp_path / "run", "--drafter-option", *words) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_scripted_drafters_of_an_audit_take_no_options(
    artifact: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert audit(artifact, tmp_path, "-d", "random", "--drafter-option", "seed=1") == 2
    assert "'random' takes no folder and no options" in capsys.readouterr().err
