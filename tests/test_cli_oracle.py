"""``breakeven oracle`` and ``breakeven report`` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.cli.app import run
from fake_run import write_run
from test_calibration import calibration

Shown = pytest.CaptureFixture[str]


def answers(capsys: Shown, *words: str) -> dict[str, dict[str, float]]:
    """Question and r -> value, of ``breakeven oracle … --json``."""
    assert run(["oracle", *words, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        found.setdefault(line["question"], {})[str(line["r"])] = line["value"]
    return found


def test_the_papers_figures(capsys: Shown) -> None:
    found = answers(capsys, "--paper")
    assert round(found["PEFT-BD with drafting free"]["1"], 3) == 67.865
    fastmtp = found["AL needed to match FastMTP (188.01 tok/s)"]
    plain = found["AL needed to match plain decoding (431.36 tok/s)"]
    assert {r: round(value, 1) for r, value in fastmtp.items()} == {"1": 8.0, "0": 15.9}
    assert {r: round(value, 2) for r, value in plain.items()} == {"1": 18.31, "0": 36.5}
    assert round(found["Both passes at the price of a plain step"]["None"]) == 621


def test_the_papers_table_says_what_each_figure_means(capsys: Shown) -> None:
    assert run(["oracle", "--paper"]) == 0
    shown = capsys.readouterr().out
    for figure in ("67.865 tok/s", "7.98", "18.31", "15.91", "36.50", "621 tok/s", "1.44×"):
        assert figure in shown
    assert "r: share of the drafting time taken away" in shown
    assert "Out of reach" in shown


def test_a_run_is_computed_from_its_files(capsys: Shown, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    found = answers(capsys, str(folder), "--config", "peft-bd-gated-k4")
    rows = (folder / "performance.csv").read_text().splitlines()
    header, row = rows[0].split(","), next(r for r in rows if r.startswith("peft-bd-gated-k4,all"))
    file = dict(zip(header, row.split(","), strict=True))
    need = found["AL needed to match plain decoding"]
    assert need["0"] == pytest.approx(float(file["break_even"]), rel=1e-3)
    assert need["1"] == pytest.approx(float(file["c_v"]) + float(file["c_s"]), rel=1e-3)
    assert found["Now"]["0"] == pytest.approx(float(file["tokens_per_s"]), rel=1e-3)
    assert found["Best draft length"]["0"] == 4


@pytest.mark.parametrize("word", ["--draft-cost=1", "--verify-cost=1.2", "--sequential"])
@pytest.mark.parametrize("source", ["--paper", "run"])
def test_what_was_measured_is_not_given_by_hand_as_well(
    capsys: Shown, tmp_path: Path, source: str, word: str
) -> None:
    place = source if source == "--paper" else str(write_run(tmp_path / "run"))
    assert run(["oracle", place, word]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{word.split('=')[0]} is for figures typed by hand" in shown.err
    assert shown.err.count("\n") == 1


def test_all_configurations_of_a_run(capsys: Shown, tmp_path: Path) -> None:
    assert run(["oracle", str(write_run(tmp_path / "run"))]) == 0
    shown = capsys.readouterr().out
    assert "peft-bd-k16" in shown
    assert "earns its price" in " ".join(shown.replace("│", " ").split())


def test_by_hand(capsys: Shown) -> None:
    words = ["--acceptance", "0.8,0.6,0.5", "--draft-cost", "1.0", "--verify-cost", "1.1"]
    found = answers(capsys, *words)
    assert found["Now"]["0"] == pytest.approx(2.9 / 2.1)
    assert found["AL needed to match plain decoding"] == pytest.approx({"0": 2.1, "1": 1.1})
    assert found["Best draft length"]["0"] == 3
    fast = answers(capsys, *words, "--plain", "40")
    assert fast["Now"]["0"] == pytest.approx(40 * 2.9 / 2.1)


def test_by_hand_one_token_after_another(capsys: Shown) -> None:
    words = ["--acceptance", "0.8,0.75,0.1", "--conditional", "--sequential"]
    found = answers(capsys, *words, "--draft-cost", "0.3", "--verify-cost", "1,1.1,1.2")
    survival = (0.8, 0.6, 0.06)
    assert found["Now"]["0"] == pytest.approx((1 + sum(survival)) / (0.9 + 1.2))
    assert found["Best draft length"]["0"] == 2


def test_what_if_by_hand(capsys: Shown) -> None:
    words = ["--acceptance", "0.5,0.3", "--draft-cost", "0.8", "--verify-cost", "1.1"]
    found = answers(capsys, *words, "--more-acceptance", "0.2", "--draft-price", "0.25")
    more = found["If 20 more of 100 drafts held at each position"]["None"]
    assert more == pytest.approx((1 + 0.7 + 0.7 * 0.8) / 1.9)
    cheaper = found["If drafting cost 0.25 times as much"]["None"]
    assert cheaper == pytest.approx(1.8 / 1.3)
    kept = answers(capsys, *words, "--keep-vocabulary", "0.25", "--head-share", "0.8")
    [question] = [q for q in kept if "vocabulary kept 25%" in q]
    assert kept[question]["None"] == pytest.approx(1.8 / (0.8 * 0.4 + 1.1))


def test_a_calibration_says_what_each_drafter_needs(capsys: Shown, tmp_path: Path) -> None:
    made = calibration()
    made.write(tmp_path / "calibration.json")
    for where in (tmp_path, tmp_path / "calibration.json"):
        found = answers(capsys, str(where))
        need = found["AL needed with K = 4"]["0"]
        assert need == pytest.approx(made.round_cost("gated", 4).break_even)
    assert found["A pass of 8 rows"]["None"] == pytest.approx(1.5)
    assert found["A pass of 4 rows in mode eager"]["None"] == pytest.approx(1.1)
    assert found["A pass of 4 rows for each of 4 requests"]["None"] == pytest.approx(1.1)
    assert found["A pass of 4 rows behind 512 tokens"]["None"] == pytest.approx(26 / 24)


def test_a_calibration_with_acceptance(capsys: Shown, tmp_path: Path) -> None:
    made = calibration()
    made.write(tmp_path / "calibration.json")
    found = answers(capsys, str(tmp_path), "--acceptance", "0.9,0.8", "--config", "gated")
    committed = 1 + 1 + 0.9 + 0.9 * 0.8 + 0.9 * 0.8 * 0.8  # the free token takes no rate
    cost = made.round_cost("gated", 4)
    assert found["Expected speed"]["0"] == pytest.approx(committed / cost.break_even)
    assert found["With drafting free"]["1"] == pytest.approx(committed / (cost.verify + cost.other))
    assert found["Best draft length"]["0"] == 4
    assert "Best of 4 requests together" in found
    assert run(["oracle", str(tmp_path), "--acceptance", "1.4"]) == 2
    assert "not a probability" in capsys.readouterr().err
    assert run(["oracle", str(tmp_path), "--config", "gate"]) == 2
    assert "did you mean 'gated'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of"),
        (["--paper", "--acceptance", "0.5"], "give one of"),
        (["--acceptance", "0.5,a"], "numbers separated by commas"),
        (["--acceptance", "0.5,0.6"], "position 2 rises"),
        (["--acceptance", "0.5,0.4", "--verify-cost", "1,2,3"], "one for each of the 2 lengths"),
        (["--acceptance", "0.5", "--plain", "0"], "above 0"),
        (["--acceptance", "0.5", "--draft-cost", "-1"], "0 or more plain steps"),
        (["absent"], "no such file or folder; `breakeven calibrate` writes"),
        (["absent", "--acceptance", "0.8,0.6"], "no such file or folder; `breakeven calibrate`"),
        (["absent.json"], "no such file; `breakeven calibrate` writes it"),
    ],
)
def test_bad_input_gets_one_line(capsys: Shown, words: list[str], said: str) -> None:
    assert run(["oracle", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_only_a_run_has_an_acceptance_of_its_own(capsys: Shown, tmp_path: Path) -> None:
    """The stages of a calibration that was stopped are no run, and neither is any other folder."""
    (tmp_path / "stopped" / "stages").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    write_run(tmp_path / "run")
    for name, said in (
        ("stopped", "goes on with one that was stopped"),
        ("notes", "no result file that can be read"),
        ("run", "whose acceptance was measured: leave the rates out"),
    ):
        assert run(["oracle", str(tmp_path / name), "--acceptance", "0.8,0.6"]) == 2
        assert said in capsys.readouterr().err


def test_the_title_says_how_acceptance_was_read(capsys: Shown, tmp_path: Path) -> None:
    calibration().write(tmp_path / "calibration.json")
    words = ["--acceptance", "0.8,0.5"]
    for given, said in (
        ([str(tmp_path), *words], "rates 0.8, 0.5, each given the drafts before"),
        (words, "survival 0.8, 0.5"),
        ([*words, "--conditional"], "survival 0.8, 0.4"),
    ):
        assert run(["oracle", *given, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["title"].endswith(said)
    assert run(["oracle", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "By hand: survival" in shown
    assert "for a calibration, how often draft k holds" in shown


def test_an_unknown_configuration_names_the_known_ones(capsys: Shown, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert run(["oracle", str(folder), "--config", "eagle"]) == 2
    assert "it has ngram-k3, peft-bd-gated-k4" in capsys.readouterr().err


def test_a_run_without_prices_says_so(capsys: Shown, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "performance.csv").unlink()
    assert run(["oracle", str(folder)]) == 2
    assert "has no prices" in capsys.readouterr().err


def test_report_writes_beside_the_run(capsys: Shown, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert run(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("It pays: ngram-k3")
    assert (folder / "report.html").exists()
    assert run(["report", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err


def test_report_for_machines(capsys: Shown, tmp_path: Path) -> None:
    folder, out = write_run(tmp_path / "run"), tmp_path / "page.html"
    (folder / "cost_curve.csv").unlink()
    assert run(["report", str(folder), "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["report"] == str(out)
    assert answer["bytes"] == out.stat().st_size
    (note,) = answer["notes"]
    assert note == "run/cost_curve.csv: missing: no cost curve and no best draft length"
