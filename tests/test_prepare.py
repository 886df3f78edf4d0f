"""From prompts to an artifact: killed, resumed, out of space, refused; nothing lost or doubled."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breakeven.cli.app import run
from breakeven.config import load_recipe
from breakeven.core import Finish
from breakeven.data import regenerate as regeneration
from breakeven.data.artifact import load_artifact
from breakeven.data.journal import Journal
from breakeven.data.prepare import PART, make_room, plan, prepare
from breakeven.data.prompt import Pool
from breakeven.data.recipe import GenerateSection, PrepareRecipe
from breakeven.data.regenerate import arranged, regenerate
from breakeven.data.render import Rendered
from breakeven.decode.request import Completion, Request
from breakeven.errors import DataError, OutputExistsError
from tiny_chat import EOS, tiny_loaded

ROOT = Path(__file__).parents[1]
COUNT = 12


@pytest.fixture
def recipe(tmp_path: Path) -> PrepareRecipe:
    source = tmp_path / "mine.jsonl"
    source.write_text("".join(f'{{"prompt": "Prompt number {i}"}}\n' for i in range(COUNT)))
    return PrepareRecipe.model_validate(
        {
            "sources": {"jsonl": {"paths": [str(source)]}},
            "split": {"validation": 2, "test": 2},
            "generate": {"max_new_tokens": 6, "batch": 3},
        }
    )


def made(recipe: PrepareRecipe, folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Prepare and return (id, continuation) of all rows in file order."""
    loaded = tiny_loaded()
    prepare(recipe, loaded, folder, plan(recipe, loaded, folder))
    artifact = load_artifact(folder, loaded.identity)
    return [(r.id, r.continuation_ids) for s in artifact.shards for r in artifact.rows(s)]


def interrupted_after(
    rows: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = KeyboardInterrupt
) -> None:
    """Make the decoder fail when it has answered ``rows`` requests."""
    real = regeneration.generate

    def failing(*args: Any, **kwargs: Any) -> Iterator[Completion]:
        for number, answer in enumerate(real(*args, **kwargs)):
            if number == rows:
                raise error
            yield answer

    monkeypatch.setattr(regeneration, "generate", failing)


def scripted(tokens: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Answer everything with ``tokens``; returns the list of requests that were asked."""
    asked: list[Request] = []

    def answers(_: object, requests: list[Request], **__: object) -> Iterator[Completion]:
        for request in requests:
            asked.append(request)
            yield Completion(request.id, list(tokens), Finish.STOP)

    monkeypatch.setattr(regeneration, "generate", answers)
    return asked


def test_the_artifact_holds_every_prompt_once_in_order_of_ids(
    recipe: PrepareRecipe, tmp_path: Path
) -> None:
    rows = made(recipe, tmp_path / "out")
    artifact = load_artifact(tmp_path / "out")
    assert len({name for name, _ in rows}) == COUNT == len(rows)
    assert artifact.contract.splits == {"train": 8, "validation": 2, "test": 2}
    assert artifact.contract.sources == {"jsonl": COUNT}
    assert artifact.contract.tokens["train"] == sum(
        len(r.continuation_ids) for r in artifact.rows("train")
    )
    ids = [r.id for r in artifact.rows("train")]
    assert ids == sorted(ids)
    assert not list((tmp_path / "out").glob("*.part"))
    assert load_recipe(PrepareRecipe, tmp_path / "out" / "recipe.yaml") == recipe


@pytest.mark.parametrize("rows", [1, 4, 11])
def test_a_killed_run_resumes_with_no_row_lost_or_doubled(
    recipe: PrepareRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    whole = made(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupted_after(rows, patch)
        with pytest.raises(KeyboardInterrupt):
            made(recipe, tmp_path / "out")
    journal = tmp_path / "out" / PART
    assert len(journal.read_text().splitlines()) == rows + 1
    with journal.open("ab") as file:  # as kill -9 may leave it
        file.write(b'{"key":"0123","ids":[4,')
    with monkeypatch.context() as patch:
        asked: list[str] = []
        real = regeneration.generate

        def watching(verifier: Any, requests: list[Request], **options: Any) -> Any:
            asked.extend(r.id for r in requests)
            return real(verifier, requests, **options)

        patch.setattr(regeneration, "generate", watching)
        assert made(recipe, tmp_path / "out") == whole
    assert len(asked) == len(set(asked)) == COUNT - rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10_000), count=st.integers(0, 6))
def test_a_journal_cut_at_any_byte_keeps_every_whole_line(
    tmp_path: Path, cut: int, count: int
) -> None:
    path = tmp_path / "journal.part"
    path.unlink(missing_ok=True)
    entries = [{"key": str(i), "ids": list(range(i))} for i in range(count)]
    with Journal(path, {"of": "x"}) as journal:
        for entry in entries:
            journal.append(entry)
    content = path.read_bytes()
    content = content[: cut % (len(content) + 1)]
    path.write_bytes(content)
    whole = max(0, content.count(b"\n") - 1)
    with Journal(path, {"of": "x"}) as journal:
        assert journal.entries == entries[:whole]
        journal.append({"key": "new"})
    with Journal(path, {"of": "x"}) as journal:
        assert journal.entries == [*entries[:whole], {"key": "new"}]
        assert journal.broken == 0


def test_a_broken_line_in_the_middle_is_counted_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.part"
    path.write_text('{"of":"x"}\n{"key":"a"}\n{"key":\n[]\n{"key":"b"}\n')
    with Journal(path, {"of": "x"}) as journal:
        assert [e["key"] for e in journal.entries] == ["a", "b"]
        assert journal.broken == 2


@pytest.mark.parametrize("field", ["weights_sha256", "max_continuation"])
def test_another_verifier_or_length_does_not_continue_a_journal(
    recipe: PrepareRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    interrupted_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        made(recipe, tmp_path / "out")
    journal = tmp_path / "out" / PART
    header, *rest = journal.read_text().splitlines(keepends=True)
    changed = {**json.loads(header), field: "other"}
    journal.write_text("".join([json.dumps(changed) + "\n", *rest]))
    with pytest.raises(DataError, match=f"begun with {field} = 'other', this run has"):
        made(recipe, tmp_path / "out")
    assert len(journal.read_text().splitlines()) == 3


def test_a_full_disk_keeps_what_is_written_and_says_what_to_do(
    recipe: PrepareRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        real, calls = os.fsync, [0]

        def full(descriptor: int) -> None:
            calls[0] += 1
            if calls[0] > 2:  # the header and the first lines fit
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        patch.setattr("breakeven.data.journal.SYNC_EVERY", 5)
        patch.setattr("breakeven.data.journal.os.fsync", full)
        with pytest.raises(
            DataError, match="the disk is full; the 9 entries written so far are safe"
        ):
            made(recipe, tmp_path / "out")
    assert len((tmp_path / "out" / PART).read_text().splitlines()) == 10
    assert made(recipe, tmp_path / "out") == whole


def test_other_write_errors_are_not_called_a_full_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.part", {})
    journal._file.close()
    with pytest.raises(ValueError, match="closed file"):
        journal.append({"a": 1})


def test_empty_continuations_are_dropped_and_counted_and_fatal_when_all_are(
    recipe: PrepareRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tiny_loaded()
    scripted((EOS,), monkeypatch)
    with pytest.raises(DataError, match="all 12 continuations are empty: the verifier ends"):
        made(recipe, tmp_path / "none")

    folder = tmp_path / "some"
    planned = plan(recipe, loaded, folder)
    scripted((5, EOS), monkeypatch)
    emptied = planned.parts["train"][3]
    with pytest.raises(FileNotFoundError):
        (folder / PART).read_text()
    header = json.loads((tmp_path / "none" / PART).read_text().splitlines()[0])
    with Journal(folder / PART, header) as journal:
        journal.append({"key": emptied.key, "ids": [EOS], "finish": "stop"})
    contract = prepare(recipe, loaded, folder, planned)
    assert planned.after["empty continuation"] == 1
    assert contract.splits["train"] == 7
    assert emptied.id not in {r.id for r in load_artifact(folder).rows("train")}


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_the_rows_and_fail_together(
    recipe: PrepareRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    several = recipe.model_copy(
        update={"generate": GenerateSection(max_new_tokens=6, batch=2, workers=workers, threads=1)}
    )
    assert dict(made(several, tmp_path / "a")).keys() == dict(made(recipe, tmp_path / "b")).keys()
    interrupted_after(1, monkeypatch, RuntimeError)
    with pytest.raises(RuntimeError):
        made(several, tmp_path / "c")


def test_a_changed_prompt_set_reuses_the_answers_it_still_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Rendered(str(i), "chat", Pool.ANY, (i,)) for i in range(6)]
    asked = scripted((5, EOS), monkeypatch)
    loaded, section = tiny_loaded(), GenerateSection()
    with Journal(tmp_path / "j.part", {}) as journal:
        regenerate(loaded.verifier, loaded.eos, rows[:4], journal, section)
        answers = regenerate(loaded.verifier, loaded.eos, rows[2:], journal, section)
    assert set(answers) == {r.key for r in rows[2:]}
    assert len(asked) == 6


@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 4))
def test_the_order_of_work_keeps_every_row_and_neighbours_alike(
    lengths: list[int], batch: int
) -> None:
    rows = [Rendered(str(i), "c", Pool.ANY, (i,) * n) for i, n in enumerate(lengths)]
    order = arranged(rows, batch)
    assert sorted(r.id for r in order) == sorted(r.id for r in rows)
    size = regeneration.WINDOW * batch
    for start in range(0, len(order), size):
        window = [len(r.prompt_ids) for r in order[start : start + size]]
        assert window == sorted(window, reverse=True)


def test_an_existing_folder_is_not_overwritten_without_force(
    recipe: PrepareRecipe, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    made(recipe, out)
    with pytest.raises(
        OutputExistsError, match="holds an artifact; give another --out, or --force"
    ):
        make_room(out, force=False, resume=True)
    make_room(out, force=True, resume=True)
    assert not list(out.glob("*.parquet"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(OutputExistsError, match="holds other files"):
        make_room(tmp_path / "other", force=False, resume=True)
    with pytest.raises(OutputExistsError, match="is a file"):
        make_room(tmp_path / "other" / "thesis.txt", force=True, resume=True)


def test_a_run_that_failed_on_its_input_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "mine_error.jsonl").touch()
    make_room(tmp_path, force=False, resume=True)


def test_an_unfinished_run_is_continued_or_begun_again(tmp_path: Path) -> None:
    Journal(tmp_path / PART, {"of": "x"}).close()
    make_room(tmp_path, force=False, resume=True)
    assert (tmp_path / PART).exists()
    make_room(tmp_path, force=False, resume=False)
    assert not (tmp_path / PART).exists()


def test_two_files_of_one_name_and_a_recipe_without_sources_are_errors(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.jsonl").write_text(f'{{"prompt": "{folder}"}}\n')
    paths = [str(tmp_path / folder / "x.jsonl") for folder in ("a", "b")]
    twice = PrepareRecipe.model_validate({"sources": {"jsonl": {"paths": paths}}})
    with pytest.raises(DataError, match="two prompts have the id 'x-000001'; rename one"):
        plan(twice, tiny_loaded(), tmp_path)
    with pytest.raises(DataError, match="no prompt is left; name a source"):
        plan(PrepareRecipe(), tiny_loaded(), tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("artifact.yaml")), ids=str)
def test_every_shipped_recipe_of_an_artifact_loads(path: Path) -> None:
    load_recipe(PrepareRecipe, path)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda *_, **__: tiny_loaded())


@pytest.mark.usefixtures("cli")
def test_the_command_says_what_it_will_do_does_it_and_does_it_only_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "mine.jsonl", tmp_path / "out"
    lines = [f'{{"prompt": "Prompt number {i}"}}' for i in range(6)]
    source.write_text("\n".join([*lines, lines[0], "{"]))
    call = ["prepare", str(source), "--out", str(out), "split.validation=1", "split.test=1"]
    call.append("generate.max_new_tokens=4")
    assert run([*call, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "6 prompts" in shown
    assert "1 duplicates" in shown
    assert "dropped 1 not JSON" in shown
    assert "a minute or less with one worker" in shown
    assert not out.exists()
    assert run([*call, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["splits"] == {"train": 4, "validation": 1, "test": 1}
    assert answer["out"] == str(out)
    assert len(load_artifact(out).rows("train")) == 4
    assert (out / "mine_error.jsonl").exists()
    assert run(call) == 2
    assert "holds an artifact; give another --out, or --force" in capsys.readouterr().err
    assert run([*call, "--force"]) == 0
    assert "wrote 6 rows" in capsys.readouterr().out


@pytest.mark.usefixtures("cli")
def test_ctrl_c_keeps_the_journal_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "mine.jsonl", tmp_path / "out"
    source.write_text("".join(f'{{"prompt": "Prompt number {i}"}}\n' for i in range(6)))
    call = ["prepare", str(source), "--out", str(out), "split.validation=1", "split.test=1"]
    call.append("generate.max_new_tokens=4")
    with monkeypatch.context() as patch:
        interrupted_after(3, patch)
        assert run(call) == 130
    assert "the same command continues after them" in capsys.readouterr().err
    assert len((out / PART).read_text().splitlines()) == 4
    assert run(call) == 0
    assert sum(load_artifact(out).contract.splits.values()) == 6


@pytest.mark.usefixtures("cli")
def test_a_wrong_recipe_is_one_line_with_the_nearest_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["prepare", "recipes/gone.yaml", "--out", str(tmp_path / "out")]
    assert run(call) == 2
    assert "no such recipe" in capsys.readouterr().err
    assert run(["prepare", "x.jsonl", "sources.magpy.count=3", "--out", str(tmp_path / "o")]) == 2
    assert "unknown key 'sources.magpy'; did you mean 'magpie'" in capsys.readouterr().err


def test_a_dry_run_splits_as_the_run_would(recipe: PrepareRecipe, tmp_path: Path) -> None:
    parts = plan(recipe, tiny_loaded(), None).parts
    written = plan(recipe, tiny_loaded(), tmp_path / "out").parts
    assert {name: len(rows) for name, rows in parts.items()} == {
        name: len(rows) for name, rows in written.items()
    }
    split = recipe.split.model_copy(update={"validation": 500, "test": 500})
    with pytest.raises(DataError, match="500 validation"):
        plan(recipe.model_copy(update={"split": split}), tiny_loaded(), None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["few.jsonl"], "2 prompts, 2 of them allowed outside training, do not give 200"),
        (
            ["few.jsonl", "sources.sharegpt={path: nowhere.json, count: 5}"],
            "nowhere.json: no such file",
        ),
        (["nowhere.jsonl"], "nowhere.jsonl: no such file or directory"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_what_is_wrong_with_the_prompts_is_said_before_a_model_is_loaded(
    words: list[str],
    said: str,
    more: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", load)
    Path("few.jsonl").write_text('{"prompt": "One"}\n{"prompt": "Two"}\n')
    assert run(["prepare", *words, "--out", "out", *more]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not Path("out").exists()
