"""``breakeven generate`` on a tiny model directory: answers, their account, and mistakes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from breakeven.cli.app import run
from breakeven.cli.generate import coloured, marked
from breakeven.core import Finish, Round
from breakeven.cost.calibration import Calibration
from breakeven.decode.request import Completion
from test_calibration import calibration
from tiny_chat import byte_tokenizer, chat_model

Captured = pytest.CaptureFixture[str]
QUESTION = "Hello"  # answered with some variety
TOKENS = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("tiny") / "model")


def generate(model: Path, *words: str) -> int:
    shared = ["--verifier", str(model), "--threads", "1", "--max-new-tokens", str(TOKENS)]
    return run(["generate", *shared, *words])


def answers(capsys: Captured) -> list[dict[str, Any]]:
    """What ``--json`` printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def answer(model: Path, capsys: Captured, *words: str) -> dict[str, Any]:
    """The only answer."""
    assert generate(model, *words, "--json") == 0
    [found] = answers(capsys)
    return found


def test_an_answer_is_text_and_its_account(model: Path, capsys: Captured) -> None:
    assert generate(model, QUESTION) == 0
    shown = capsys.readouterr()
    assert shown.out.strip()
    assert f"[{TOKENS} tokens, finish: length; " in shown.err
    assert "tokens/s after the first]" in shown.err
    assert "verify pass" not in shown.err  # nothing was drafted


def test_a_drafter_changes_the_account_and_not_the_text(model: Path, capsys: Captured) -> None:
    plain = answer(model, capsys, QUESTION)
    drafted = answer(model, capsys, QUESTION, "--drafter", "ngram", "-k", "3")
    assert drafted["text"] == plain["text"]
    assert (plain["rounds"], plain["drafted"], plain["acceptance_length"]) == (0, 0, None)
    assert 0 < drafted["rounds"] < TOKENS
    assert drafted["accepted"] <= drafted["drafted"]
    assert (drafted["committed"], plain["committed"]) == (TOKENS - 1, 0)
    assert drafted["acceptance_length"] == round((TOKENS - 1) / drafted["rounds"], 3)
    assert generate(model, QUESTION, "--drafter", "ngram") == 0
    shown = capsys.readouterr().err
    found = re.search(r"(\d+) tokens,.* 1 token from the prompt's pass, (\d+) from (\d+) rounds?: "
                      r"([\d.]+) tokens per verify pass\]", shown)  # fmt: skip
    assert found, shown
    tokens, committed, rounds = map(int, found.groups()[:3])
    assert tokens == committed + 1 == TOKENS
    assert found[4] == f"{committed / rounds:.2f}", "whoever divides finds the same"


def test_json_is_one_object_a_line(model: Path, capsys: Captured) -> None:
    assert generate(model, QUESTION, "And the grass?", "--json") == 0
    first, second = answers(capsys)
    assert (first["id"], second["id"]) == ("1", "2")
    assert set(first) == {
        "id", "text", "tokens", "finish", "prefill_s", "decode_s", "rounds", "drafted",
        "accepted", "committed", "acceptance_length", "choices",
    }  # fmt: skip
    assert (first["tokens"], first["finish"]) == (TOKENS, "length")
    assert first["prefill_s"] > 0


def test_a_file_of_prompts_with_broken_lines(model: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(
        b'{"prompt": "Hello"}\n'
        b"\n"
        b'{"prompt": \n'
        b"\xff\xfe\n"
        b'{"messages": [{"role": "user", "content": "And the grass?"}]}\n'
        b'{"nothing": 1}\n'
    )
    assert generate(model, "--file", str(file), "--json") == 0
    shown = capsys.readouterr()
    found = [json.loads(line) for line in shown.out.splitlines()]
    assert [entry["id"] for entry in found] == ["prompts-000001", "prompts-000005"]
    assert found[0]["text"] == answer(model, capsys, QUESTION)["text"]
    assert f"note: 1 line of {file} skipped: not JSON" in shown.err
    assert "skipped: not UTF-8" in shown.err
    assert not (tmp_path / "prompts_error.jsonl").exists()


def test_a_batch_gives_the_same_answers(model: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prompts.jsonl"
    texts = [QUESTION, "And the grass?", "Count to three.", "Say it again: again."]
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    words = ["--file", str(file), "--drafter", "ngram", "--json"]
    assert generate(model, *words) == 0
    alone = {found["id"]: found["text"] for found in answers(capsys)}
    assert generate(model, *words, "--batch", "3") == 0
    assert {found["id"]: found["text"] for found in answers(capsys)} == alone
    assert len(alone) == 4


def test_compare_says_whether_the_tokens_agree(model: Path, capsys: Captured) -> None:
    found = answer(model, capsys, QUESTION, "--drafter", "ngram", "--compare")
    assert found["equals_plain"] is True
    assert generate(model, QUESTION, "--drafter", "ngram", "--compare") == 0
    assert "; equal to plain decoding]" in capsys.readouterr().err


def test_show_drafts_shows_the_same_text(
    model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [QUESTION, "--drafter", "ngram"]
    assert generate(model, *words) == 0
    plain = capsys.readouterr().out
    assert generate(model, *words, "--show-drafts") == 0
    assert capsys.readouterr().out.replace("«", "").replace("»", "") == plain
    drafted = Text.assemble("a ", ("b", "green"))
    monkeypatch.setattr("breakeven.cli.generate.coloured", lambda *_: drafted)
    assert generate(model, *words, "--show-drafts") == 0
    assert capsys.readouterr().out == "a «b»\n", "no colours in a file"


def told(text: str, *rounds: tuple[int, int], kept: int | None = None) -> Completion:
    """An answer of bytes, whose ``rounds`` are (accepted, committed)."""
    tokens = byte_tokenizer()(text)["input_ids"]
    account = [Round("1", 4, accepted, committed) for accepted, committed in rounds]
    return Completion("1", tokens, Finish.LENGTH, text[:kept], account)


def green(shown: Text) -> list[str]:
    return [shown.plain[span.start : span.end] for span in shown.spans if span.style == "green"]


def test_drafted_and_accepted_tokens_are_green() -> None:
    shown = coloured(told("abcdefg", (2, 3), (0, 1), (2, 2)), byte_tokenizer())
    assert shown.plain == "abcdefg"
    assert green(shown) == ["b", "c", "f", "g"]  # a is the prefill's, d and e the verifier's


def test_without_colours_drafted_text_is_marked() -> None:
    shown = coloured(told("abcdefg", (2, 3), (0, 1), (2, 2)), byte_tokenizer())
    assert marked(shown) == "a«bc»de«fg»"
    assert marked(Text("none [of] it")) == "none [of] it"


def test_a_letter_of_many_tokens_is_shown_whole() -> None:
    shown = coloured(told("a😀é!", (3, 4), (2, 3)), byte_tokenizer())
    assert shown.plain == "a😀é!"
    assert green(shown) == ["é"]  # the last byte of the face is the verifier's, as is the mark


def test_nothing_is_shown_beyond_a_stop() -> None:
    assert coloured(told("abcSTOP", (6, 6), kept=3), byte_tokenizer()).plain == "abc"


def test_an_answer_ends_before_a_stop(model: Path, capsys: Captured) -> None:
    whole = answer(model, capsys, QUESTION)["text"]
    stop = next(c for c in whole[5:] if c.isprintable() and c != "\ufffd" and c not in whole[:5])
    for more in ([], ["--drafter", "ngram"]):
        found = answer(model, capsys, QUESTION, "--stop", stop, *more)
        assert found["text"] == whole[: whole.index(stop)]
        assert (found["finish"], found["tokens"] < TOKENS) == ("stop", True)


def test_raw_text_goes_without_the_template(model: Path, capsys: Captured) -> None:
    raw = answer(model, capsys, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "--raw")
    assert raw["text"] == answer(model, capsys, "Hi")["text"]


def test_standard_input_is_a_prompt(
    model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(QUESTION))
    piped = answer(model, capsys, "-")
    assert piped["text"] == answer(model, capsys, QUESTION)["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], 'no prompt given; write breakeven generate "Why is the sky blue?"'),
        ([""], "prompt 1 is empty"),
        ([QUESTION, "  \n"], "prompt 2 is empty"),
        (["long " * 300], "the model takes 1024 with the answer; shorten it"),
        ([QUESTION, "--drafter", "ngarm"], "no drafter is called 'ngarm'; did you mean 'ngram'?"),
        ([QUESTION, "--drafter", "fastmtp"], "give its folder: fastmtp=FOLDER"),
        ([QUESTION, "--drafter", "fastmtp=nowhere"], "no folder 'nowhere'"),
        ([QUESTION, "--drafter", "ngram=here"], "'ngram' has no weights"),
        (["--file", "absent.jsonl"], "absent.jsonl: no such file"),
        ([QUESTION, "--max-new-tokens", "0"], "--max-new-tokens"),
    ],
)
def test_mistakes_are_one_line(
    model: Path, capsys: Captured, words: list[str], message: str
) -> None:
    assert generate(model, *words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out


def test_a_file_without_one_good_line_is_refused(
    model: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("{\n{\n")
    assert generate(model, "--file", str(file)) == 2
    assert "broken: 2 lines, the first: not JSON" in capsys.readouterr().err


def test_a_calibration_of_another_model_is_refused(
    model: Path, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "calibration.json"
    calibration().write(path)
    words = ("--drafter", "ngram", "--policy", "adaptive", "--calibration", str(path))
    assert generate(model, QUESTION, *words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "its verifier is" in line
    assert "breakeven calibrate" in line


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-d", "ngram"], "this is fixed"),
        (["-d", "ngram", "--policy", "confidence"], "this is confidence"),
        (["--policy", "adaptive"], "this is plain decoding"),
        (["-d", "ngram", "--policy", "adaptive", "-k", "0"], "this is plain decoding"),
        (["-d", "ngram", "--policy", "adaptive"], None),
    ],
)
def test_prices_that_nobody_reads_are_named(
    model: Path,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    what: str | None,
) -> None:
    path = tmp_path / "calibration.json"
    calibration().write(path)
    monkeypatch.setattr(
        "breakeven.measure.calibration.prices.prices_for", lambda _, path: Calibration.read(path)
    )
    assert generate(model, QUESTION, *words, "--calibration", str(path)) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "are not read" in line]
    assert [line.startswith("warning: ") for line in told] == [True] * (what is not None)
    assert what is None or told[0].endswith(what)


def test_options_of_the_drafter(model: Path, capsys: Captured) -> None:
    short = answer(model, capsys, QUESTION, "--drafter", "ngram", "-k", "3")
    words = ["--drafter", "ngram", "-k", "3", "--drafter-option"]
    long = answer(model, capsys, QUESTION, *words, "shortest=3")
    assert long["text"] == short["text"]
    assert long["drafted"] < short["drafted"]  # matches of one or two tokens count no more
    assert generate(model, QUESTION, *words, "shortest=9") == 2
    assert "give 1 <= shortest <= longest" in capsys.readouterr().err
    assert generate(model, QUESTION, "--drafter-option", "shortest=1") == 2
    assert "--drafter-option without a drafter" in capsys.readouterr().err
    assert generate(model, QUESTION, "-d", "ngrm", "-k", "0") == 2, "told though nothing is drafted"
