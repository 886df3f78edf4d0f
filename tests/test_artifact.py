"""Artifacts: written whole, read whole, refused in one line when they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breakeven.core import Finish
from breakeven.data import artifact
from breakeven.data.artifact import SCHEMA, Row, load_artifact, write_artifact
from breakeven.data.contract import Contract
from breakeven.errors import DataError
from breakeven.verifier.identity import Identity

SHIPPED = Path(__file__).parents[1] / "assets" / "smollm2-135m"
IDENTITY = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)


def contract(splits: dict[str, int]) -> Contract:
    return Contract(
        verifier="tiny",
        weights_sha256="a" * 64,
        tokenizer_sha256="b" * 64,
        chat_template_sha256="c" * 64,
        max_prompt=512,
        max_continuation=256,
        dtype="float32",
        eos=(2,),
        seed=0,
        splits=splits,
        tokens=dict.fromkeys(splits, 0),
        categories={"chat": sum(splits.values())},
        sources={"jsonl": sum(splits.values())},
        libraries={},
    )


def row(i: int) -> Row:
    return Row(f"r{i}", "chat", (1, i), (i, 2), Finish.STOP)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parts = {"train": [row(0), row(1), row(2)], "validation": [], "test": [row(3)]}
    write_artifact(tmp_path / "a", parts, contract({n: len(p) for n, p in parts.items()}))
    return tmp_path / "a"


def test_what_is_written_is_read_back(folder: Path) -> None:
    loaded = load_artifact(folder, IDENTITY)
    assert loaded.rows("train") == [row(0), row(1), row(2)]
    assert loaded.contract.splits == {"train": 3, "validation": 0, "test": 1}
    assert loaded.rows("train") is loaded.rows("train")
    shard = pq.ParquetFile(folder / "train-00000.parquet")
    assert shard.schema_arrow == SCHEMA
    assert shard.metadata.row_group(0).column(0).compression == "ZSTD"


def test_long_splits_are_cut_into_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "SHARD_ROWS", 2)
    write_artifact(tmp_path, {"train": [row(i) for i in range(5)]}, contract({"train": 5}))
    assert len(list(tmp_path.glob("train-*.parquet"))) == 3
    assert [r.id for r in load_artifact(tmp_path).rows("train")] == [f"r{i}" for i in range(5)]


@pytest.mark.parametrize("field", ["weights_sha256", "tokenizer_sha256", "chat_template_sha256"])
def test_another_verifier_is_refused_by_the_name_of_the_field(folder: Path, field: str) -> None:
    hashes = {"weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64}
    hashes["chat_template_sha256"] = "c" * 64
    hashes[field] = "d" * 64
    line = (
        rf"{field} is (a|b|c){{12}}… \(verifier 'tiny'\), but verifier 'other' has d{{12}}…; use "
        r"'tiny', or make an artifact for 'other' with `breakeven prepare`"
    )
    with pytest.raises(DataError, match=line):
        load_artifact(folder, Identity("other", **hashes))


def test_a_verifier_with_another_name_and_the_same_hashes_is_the_same(folder: Path) -> None:
    load_artifact(folder, Identity("./copy-of-tiny", "a" * 64, "b" * 64, "c" * 64))


def test_a_missing_artifact_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such artifact; `breakeven prepare` makes one"):
        load_artifact(tmp_path / "gone")
    with pytest.raises(DataError, match="not an artifact"):
        load_artifact(tmp_path)


@pytest.mark.parametrize("left", ["continuations.jsonl.part", "train-00000.parquet"])
def test_a_half_written_artifact_says_how_to_finish_it(tmp_path: Path, left: str) -> None:
    (tmp_path / left).touch()
    with pytest.raises(DataError, match=r"half written .*run the same `breakeven prepare` again"):
        load_artifact(tmp_path)


def test_a_truncated_shard_is_found_before_its_rows_are_needed(folder: Path) -> None:
    shard = folder / "train-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"train-00000\.parquet: truncated or corrupt"):
        load_artifact(folder)


def test_a_corrupt_page_is_a_one_line_error(folder: Path) -> None:
    shard = folder / "train-00000.parquet"
    content = bytearray(shard.read_bytes())
    content[4:60] = b"\xff" * 56
    shard.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00000\.parquet: truncated or corrupt"):
        load_artifact(folder).rows("train")


def test_a_missing_shard_and_foreign_columns_are_named(folder: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), folder / "test-00000.parquet")
    with pytest.raises(DataError, match="no column category"):
        load_artifact(folder)
    (folder / "test-00000.parquet").unlink()
    with pytest.raises(DataError, match="'test' has 0 rows in 0 files, the contract says 1"):
        load_artifact(folder)


def test_an_empty_split_and_an_unknown_one_say_what_to_do(folder: Path) -> None:
    loaded = load_artifact(folder)
    with pytest.raises(DataError, match=r"split 'validation' is empty; raise split\.validation"):
        loaded.rows("validation")
    with pytest.raises(DataError, match="no split 'tets'; did you mean 'test'"):
        loaded.rows("tets")


@pytest.mark.parametrize(
    ("content", "field"), [("{", "the file"), ("{}", "verifier"), ('{"extra": 1}', "verifier")]
)
def test_a_broken_contract_names_the_field(folder: Path, content: str, field: str) -> None:
    (folder / "contract.json").write_text(content)
    with pytest.raises(DataError, match=f"broken at {field}"):
        load_artifact(folder)


def test_an_unknown_field_of_the_contract_is_an_error(folder: Path) -> None:
    fields = json.loads((folder / "contract.json").read_text())
    (folder / "contract.json").write_text(json.dumps({**fields, "extra": 1}))
    with pytest.raises(DataError, match="broken at extra"):
        load_artifact(folder)


@pytest.mark.skipif(not SHIPPED.exists(), reason="the artifact is not in this checkout")
def test_the_shipped_artifact_is_what_it_promises() -> None:
    shipped = load_artifact(SHIPPED)
    rows = {split: shipped.rows(split) for split in ("train", "validation", "test")}
    assert len(rows["train"]) >= 3000
    assert min(len(rows["validation"]), len(rows["test"])) >= 200
    assert len({r.category for r in rows["test"]}) >= 6
    prompts = [r.prompt_ids for part in rows.values() for r in part]
    assert len(set(prompts)) == len(prompts)
    for r in (r for part in rows.values() for r in part):
        assert 0 < len(r.prompt_ids) <= 512
        assert 0 < len(r.continuation_ids) <= 256
        ended = r.continuation_ids[-1] in shipped.contract.eos
        assert ended == (r.finish_reason is Finish.STOP)
        assert ended or len(r.continuation_ids) == 256
