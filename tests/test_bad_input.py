"""What a person may do wrong is answered in one line, and nothing of theirs is lost."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from breakeven.cli.app import explain, main, run
from breakeven.data.artifact import write_artifact
from breakeven.data.contract import Contract
from breakeven.data.prepare import make_room as prepare_room
from breakeven.drafters import registry
from breakeven.drafters.card import CARD_FILE, Card
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.errors import DataError, DrafterError, ModelError, OutputExistsError
from breakeven.measure.description import open_folder
from breakeven.train.run import DRAFTER_FILES, TRAINING_FOLDER, check_room, make_room
from breakeven.verifier.load import load_verifier
from breakeven.verifier.lora import RowLoRA
from tiny import tiny_verifier
from tiny_chat import chat_model, tiny_loaded

Captured = pytest.CaptureFixture[str]
GOOD = "".join(f'{{"prompt": "Count to {i}"}}\n' for i in range(6))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": "half \\ud800"}', "not Unicode text (half a surrogate pair)"),
        ('{"messages": [{"role": "user", "content": "\\udfff"}]}', "not Unicode text"),
        ('{"prompt": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_breaks_the_parser_or_the_tokenizer_is_counted(
    model: Path, tmp_path: Path, capsys: Captured, line: str, reason: str
) -> None:
    (tmp_path / "p.jsonl").write_text(GOOD + line + "\n")
    call = ["prepare", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "out")]
    settings = [f"verifier.name={model}", "split.validation=1", "split.test=1"]
    assert run([*call, *settings, "generate.max_new_tokens=2"]) == 0
    assert f"from jsonl: 6 (dropped 1 {reason}" in capsys.readouterr().out
    assert len((tmp_path / "out" / "p_error.jsonl").read_text().splitlines()) == 1


def test_a_category_that_is_not_text_is_chosen_by_the_words(tmp_path: Path) -> None:
    from breakeven.data.prompt import Tally
    from breakeven.data.sources.jsonl import Jsonl, JsonlSettings

    (tmp_path / "p.jsonl").write_text('{"prompt": "Hello", "category": "\\ud800"}\n')
    (prompt,) = Jsonl(JsonlSettings(paths=(str(tmp_path / "p.jsonl"),))).prompts(Tally("jsonl"))
    assert prompt.category == "chat"


@pytest.mark.parametrize(
    "setting",
    ["split.validation=-3", "split.seed=-1", "sources.jsonl.limit=-1", "sources.magpie.batch=0",
     "sources.tulu.shuffle=-1", "split.seed=9223372036854775808"],
)  # fmt: skip
def test_a_number_out_of_range_is_one_line(tmp_path: Path, capsys: Captured, setting: str) -> None:
    (tmp_path / "p.jsonl").write_text(GOOD)
    assert run(["prepare", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "o"), setting]) == 2
    assert capsys.readouterr().err.startswith(f"error: recipe: '{setting.split('=')[0]}' = ")
    assert not (tmp_path / "o").exists()


def test_a_seed_no_generator_takes_is_refused_before_the_work(capsys: Captured) -> None:
    assert run(["bench", "--seed", str(2**64)]) == 2
    assert capsys.readouterr().err.startswith("error: recipe: 'seed' = ")


@pytest.mark.parametrize(("device", "says"), [("banana", "give cpu"), ("meta", "give cpu")])
def test_an_unknown_device_is_one_line(model: Path, device: str, says: str) -> None:
    with pytest.raises(ModelError, match=f"device '{device}': {says}"):
        load_verifier(str(model), device=device)


def test_so_many_threads_that_the_process_would_die_are_refused(model: Path) -> None:
    with pytest.raises(ModelError, match="100000 threads: give"):
        load_verifier(str(model), threads=100_000)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-d", "ngram", "-k", "100000000"], "K = 100000000 for policy 'fixed': give 1 to 256"),
        (["-d", "ngram", "-d", "suffix"], "--drafter is given 2 times: give one; breakeven bench"),
    ],
)
def test_more_drafts_or_drafters_than_there_can_be(
    model: Path, capsys: Captured, words: list[str], says: str
) -> None:
    assert run(["generate", "hi", "-m", str(model), *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")


@pytest.mark.parametrize("size", ["inf", "1e305"])
def test_a_cache_without_bounds_is_no_bound(model: Path, size: str) -> None:
    call = ["generate", "hi", "-m", str(model), "--max-new-tokens", "2", "--cache-mb", size]
    assert run(call) == 0


def test_stop_strings_and_comparing_go_together(model: Path, capsys: Captured) -> None:
    call = ["generate", "hi", "-m", str(model), "--max-new-tokens", "6", "--json"]
    assert run([*call, "--stop", "L", "-d", "ngram", "--compare"]) == 0
    assert json.loads(capsys.readouterr().out)["equals_plain"] is True
    assert run([*call, "--stop", ""]) == 2
    assert "--stop is empty" in capsys.readouterr().err
    assert run(["generate", "hi \udcff", "-m", str(model)]) == 2
    assert "prompt 1 is not Unicode text" in capsys.readouterr().err


def test_force_replaces_a_training_run_and_spares_everything_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(OutputExistsError, match="is not a training run; give another --out"):
            make_room(tmp_path, force=force)
    ours = [name.replace("*", "") or "x" for name in DRAFTER_FILES]
    for name in (*ours, "provenance.json"):
        (tmp_path / name).touch()
    check_room(tmp_path, force=True)
    assert (tmp_path / "provenance.json").exists()
    make_room(tmp_path, force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.txt", TRAINING_FOLDER]
    assert not any((tmp_path / TRAINING_FOLDER).iterdir())


def test_a_project_with_a_folder_named_training_is_spared(tmp_path: Path) -> None:
    (tmp_path / TRAINING_FOLDER).mkdir()
    (tmp_path / TRAINING_FOLDER / "notes.md").touch()
    with pytest.raises(OutputExistsError, match="is not a training run"):
        make_room(tmp_path, force=True)


def test_a_training_killed_before_its_first_step_can_be_repeated(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make_room(out, force=False)
    (out / "recipe.yaml").touch()  # written before a warm start that may take minutes
    make_room(out, force=False)


def test_prepare_deletes_no_files_of_others(tmp_path: Path) -> None:
    for name in ("film.mp4.part", "sales.parquet"):
        (tmp_path / name).touch()
    for force in (False, True):
        with pytest.raises(OutputExistsError, match="holds other files; give another --out"):
            prepare_room(tmp_path, force=force, resume=False)
    contract = Contract.model_construct(splits={"train": 0})
    write_artifact(tmp_path, {"train": []}, contract)
    prepare_room(tmp_path, force=True, resume=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["film.mp4.part", "sales.parquet"]


def test_bench_writes_into_no_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("an artifact's or a drafter's")
    for force in (False, True):
        with pytest.raises(OutputExistsError, match="holds other files: give another --out"):
            open_folder(tmp_path, {}, force=force)
    assert (tmp_path / "recipe.yaml").read_text() == "an artifact's or a drafter's"


def test_bench_started_over_keeps_no_old_figures(tmp_path: Path) -> None:
    open_folder(tmp_path, {"a": 1})
    for name in ("requests.jsonl", "verdict.json", "performance.csv"):
        (tmp_path / name).touch()
    open_folder(tmp_path, {"a": 2}, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["configuration.json"]


@pytest.mark.parametrize("value", ["x", None, [1], 0, -2, True, 2.0, 10**30])
def test_a_size_on_a_card_that_is_none_is_named(tmp_path: Path, value: Any) -> None:
    Card("peft-bd-gated", None, {"masks": value, "causal": True}).write(tmp_path)
    with pytest.raises(DrafterError, match=rf"{CARD_FILE}: masks = .* is not a whole number"):
        registry.create("peft-bd-gated", tiny_loaded(), tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("last", "x", "whole number"), ("last", [1], "whole number"), ("causal", 1, "true or false")],
)
def test_a_card_with_a_setting_of_another_kind_is_one_line(
    tmp_path: Path, name: str, value: Any, says: str
) -> None:
    GatedPeftBD.untrained(tiny_loaded().verifier, 4).save(tmp_path)
    card = Card.read(tmp_path, "peft-bd-gated", None)
    Card(card.drafter, None, {**card.settings, name: value}).write(tmp_path)
    with pytest.raises(DrafterError, match=rf"{CARD_FILE}: {name} = .* is not .*{says}"):
        registry.create("peft-bd-gated", tiny_loaded(), tmp_path)


@pytest.mark.parametrize("value", [None, 7, 1.5, {}, []])
def test_a_card_whose_hash_is_no_text_is_one_line(tmp_path: Path, value: Any) -> None:
    owner = replace(tiny_loaded().identity, weights_sha256=value)
    Card("layer-skip", owner, {"skip": [1], "layers": 2}).write(tmp_path)
    with pytest.raises(DrafterError, match=f"{CARD_FILE}: not a drafter's card"):
        registry.create("layer-skip", tiny_loaded(), tmp_path)


@pytest.mark.parametrize("config", ["[]", "{}", '{"r": 0, "lora_alpha": 8}', '{"r": null}'])
def test_an_adapter_with_a_broken_config_is_one_line(tmp_path: Path, config: str) -> None:
    verifier = tiny_verifier()
    for name in ("adapter_model.safetensors", "mask_vector.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(DrafterError, match=r"adapter_config\.json: .*train or copy it again"):
        RowLoRA.load(tmp_path, verifier.architecture)


@pytest.mark.parametrize("target", ["no_such_module_anywhere:X", "json:Nope", "boom_at_import:X"])
def test_a_plug_in_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    from importlib.metadata import EntryPoint

    (tmp_path / "boom_at_import.py").write_text("raise RuntimeError('two\\nlines')")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("broken", target, registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    with pytest.raises(DrafterError, match=r"^drafter 'broken' .* cannot be imported.*$") as found:
        registry.create("broken", tiny_loaded())
    assert "\n" not in str(found.value)


def test_an_ascii_terminal_shows_question_marks_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    with pytest.raises(SystemExit) as left:
        main(["oracle", "--paper"])
    assert left.value.code == 0
    assert b"?" in raw.getvalue()


def test_a_disk_that_fills_up_while_weights_are_written_is_one_line() -> None:
    error = SafetensorError("Error while serializing: No space left on device (os error 28)")
    assert str(explain(error)).startswith("error: the disk is full")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
                "memory: you tried to allocate 4608000000000 bytes. Error code 12"
            ),
            ", another 4608000000000 bytes were wanted",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"),
            ", another 20.00 GiB were wanted",
        ),
        (MemoryError(), ""),
    ],
)
def test_memory_that_runs_out_is_one_line(error: Exception, wanted: str) -> None:
    assert str(explain(error)).startswith(f"error: not enough memory{wanted}; ask for less")


def test_that_is_how_pytorch_says_it() -> None:
    with pytest.raises(RuntimeError) as found:
        torch.empty(10**15)
    assert str(explain(found.value)).startswith(
        "error: not enough memory, another 4000000000000000"
    )
    assert explain(RuntimeError("a fault of ours")) is None


@pytest.mark.parametrize("kind", [FileExistsError, NotADirectoryError])
def test_a_file_in_the_place_of_a_folder_is_said(kind: type[OSError]) -> None:
    found = explain(kind(17, "File exists", "runs/a"))
    assert found == "error: runs/a: a file stands where a folder is wanted; give another"


def test_a_place_without_permission_is_said() -> None:
    found = explain(PermissionError(13, "Permission denied", "/sealed"))
    assert found == "error: /sealed: no permission; give another place or change its mode"


def test_audit_says_that_it_may_not_write_before_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("breakeven.cli.audit.prepared", lambda recipe: (tiny_loaded(), []))

    def never(*_: Any, **__: Any) -> None:
        raise DataError("the work was begun")

    monkeypatch.setattr("breakeven.measure.inspection.inspect", never)
    with pytest.raises(FileExistsError):
        run(["audit", "--out", str(tmp_path / "file")], debug=True)


def test_a_demo_that_could_not_train_is_refused_before_it_begins(
    tmp_path: Path, capsys: Captured
) -> None:
    assert run(["demo", "train.fastmtp.minutes=0", "--out", str(tmp_path / "o")]) == 2
    assert "'train.fastmtp.minutes' = 0" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
