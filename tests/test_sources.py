"""Every prompt source: what it reads, what it drops, what it says about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.data.categories import CATEGORIES, categorise
from breakeven.data.prompt import Message, Pool, Prompt, Source, Tally
from breakeven.data.sources.conversation import BadRecord, opening
from breakeven.data.sources.jsonl import Jsonl, JsonlSettings
from breakeven.data.sources.sharegpt import Sharegpt, SharegptSettings
from breakeven.data.sources.templates import Kit, Templates, TemplateSettings, pooled
from breakeven.data.sources.tulu import Tulu, TuluSettings
from breakeven.errors import DataError, RecipeError

USER = (Message("user", "Hi"),)


def read(source: Source) -> tuple[list[Prompt], Tally]:
    tally = Tally(source.name)
    return list(source.prompts(tally)), tally


def written(path: Path, records: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Hi"},
        {"text": "Hi"},
        {"instruction": "Hi"},
        {"prompt": [{"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]},
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}]},
        {"conversations": [{"role": "user", "content": "Hi"}]},
        {"question_id": 81, "category": "writing", "turns": ["Hi", "And now in French"]},
    ],
)
def test_every_known_form_gives_the_turns_before_the_first_answer(record: Any) -> None:
    assert opening(record) == USER


def test_a_system_turn_and_two_user_turns_are_kept_and_what_follows_an_answer_is_not() -> None:
    turns = [
        ("system", "Be brief"),
        ("user", "Hi"),
        ("user", "There"),
        ("assistant", ""),
        ("user", "?"),
    ]
    record = {"messages": [{"role": role, "content": text} for role, text in turns]}
    assert [m.content for m in opening(record)] == ["Be brief", "Hi", "There"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([], "not an object"),
        ({"question": "Hi"}, "no messages, conversations"),
        ({"prompt": "  "}, "empty prompt"),
        ({"prompt": 3}, "no text"),
        ({"turns": []}, "at least one turn"),
        ({"messages": "Hi"}, "not a list"),
        ({"messages": ["Hi"]}, "not an object"),
        ({"messages": [{"role": "narrator", "content": "Hi"}]}, "no known role"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "no user turn"),
        ({"messages": [{"role": "user", "content": None}]}, "no text"),
    ],
)
def test_a_record_without_a_prompt_says_why(record: Any, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        opening(record)


def test_jsonl_counts_broken_lines_and_writes_them_with_their_reason(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(
        b'{"prompt": "What is 2 + 3?"}\n\n{"prompt": "caf\xe9"}\n{"prompt": \n'
        b'{"prompt": ""}\n{"category": "poems", "turns": ["A haiku, please"]}\n'
    )
    prompts, tally = read(Jsonl(JsonlSettings(paths=(str(path),)), tmp_path / "out"))
    assert [(p.id, p.category) for p in prompts] == [
        ("mine-000001", "maths"),
        ("mine-000006", "poems"),
    ]
    assert tally.dropped == {"not UTF-8": 1, "not JSON": 1, "empty prompt": 1}
    lines = (tmp_path / "out" / "mine_error.jsonl").read_text().splitlines()
    errors = [json.loads(line) for line in lines]
    assert [(e["line"], e["reason"]) for e in errors] == [
        (3, "not UTF-8"),
        (4, "not JSON"),
        (5, "empty prompt"),
    ]
    assert "caf\\xe9" in errors[0]["text"]


def test_jsonl_reads_a_byte_order_mark_and_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "c"}\n')
    prompts, _ = read(Jsonl(JsonlSettings(paths=(str(path),), limit=2)))
    assert [p.text for p in prompts] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "line"),
    [("", r"no prompt in it \(empty\)"), ("{\n[]\n", "broken: 2 lines, the first: not JSON")],
)
def test_jsonl_is_fatal_only_when_nothing_is_left(tmp_path: Path, content: str, line: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=line):
        read(Jsonl(JsonlSettings(paths=(str(path),))))


def test_jsonl_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl: no such file or directory; give a JSONL"):
        read(Jsonl(JsonlSettings(paths=(str(tmp_path / "gone.jsonl"),))))


TULU = [
    {"id": "a", "messages": [{"role": "user", "content": "Add 1 and 1"}], "source": "x/gsm_easy"},
    {"id": "b", "messages": [{"role": "assistant", "content": "?"}], "source": "x/chat"},
    {
        "id": "c",
        "messages": [
            {"role": "user", "content": "Write a poem"},
            {"role": "assistant", "content": "No"},
            {"role": "user", "content": "Please"},
        ],
        "source": "x/chat",
    },
]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_tulu_takes_the_user_turns_up_to_the_first_answer(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"tulu.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(TULU), path)
    else:
        written(path, TULU)
    prompts, tally = read(Tulu(TuluSettings(count=9, path=str(path), shuffle=0)))
    assert [(p.id, p.category, p.text) for p in prompts] == [
        ("tulu-000000-a", "maths", "Add 1 and 1"),
        ("tulu-000002-c", "writing", "Write a poem"),
    ]
    assert tally.dropped == {"no user turn before the first answer": 1}


def test_tulu_is_shuffled_by_its_seed_and_stops_at_its_count(tmp_path: Path) -> None:
    path = tmp_path / "tulu.parquet"
    rows = [{"id": str(i), "messages": TULU[0]["messages"], "source": ""} for i in range(50)]
    pq.write_table(pa.Table.from_pylist(rows), path)

    def ids(seed: int) -> list[str]:
        settings = TuluSettings(count=5, path=str(path), shuffle=50, seed=seed)
        return [p.id.split("-")[-1] for p in read(Tulu(settings))[0]]

    assert ids(1) == ids(1) != ids(2)
    assert len(ids(1)) == 5


def test_tulu_says_what_to_do_without_the_file_or_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.parquet: no such file"):
        read(Tulu(TuluSettings(count=1, path=str(tmp_path / "gone.parquet"))))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match=r"cannot be read .*give a local Parquet file"):
        read(Tulu(TuluSettings(count=1, path=str(broken))))


def sharegpt(tmp_path: Path, cut: int | None) -> Sharegpt:
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    records = [{"id": f"r{i}", "conversations": turns} for i in range(3)]
    records.append({"id": "r3", "conversations": [{"from": "gpt", "value": "unasked"}]})
    records.append({"id": "r4", "conversations": turns})
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(records, indent=1)[:cut])
    return Sharegpt(SharegptSettings(count=9, path=str(path)))


def test_sharegpt_streams_what_is_whole_and_says_where_the_file_is_cut(tmp_path: Path) -> None:
    prompts, tally = read(sharegpt(tmp_path, cut=-60))
    assert [p.id for p in prompts] == [f"sharegpt-00000{i}-r{i}" for i in range(3)]
    size = (tmp_path / "sharegpt.json").stat().st_size
    assert tally.notes == [
        f"sharegpt.json is cut off at byte {size:,}: 4 conversations before it are whole"
    ]
    assert tally.dropped == {"no user turn before the first answer": 1}


def test_a_whole_sharegpt_file_needs_no_note(tmp_path: Path) -> None:
    prompts, tally = read(sharegpt(tmp_path, cut=None))
    assert len(prompts) == 4
    assert not tally.notes


def test_sharegpt_names_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(DataError, match="no such file"):
        read(Sharegpt(SharegptSettings(count=1, path=str(path))))
    path.write_text("[{]}")
    with pytest.raises(DataError, match=r"no usable conversation .*is not JSON throughout"):
        read(Sharegpt(SharegptSettings(count=1, path=str(path))))
    path.write_text("[]")
    with pytest.raises(DataError, match="no usable conversation"):
        read(Sharegpt(SharegptSettings(count=1, path=str(path))))


def test_the_kit_gives_what_is_asked_for_and_the_same_again() -> None:
    settings = TemplateSettings(counts={"chat": 40, "extraction": 30}, held=0.2, seed=3)
    prompts, tally = read(Templates(settings))
    assert [p.category for p in prompts].count("chat") == 40
    assert sum(p.pool is Pool.HELD for p in prompts) == 14
    assert len({p.id for p in prompts}) == 70
    assert not tally.notes
    assert read(Templates(settings))[0] == prompts


def test_the_kit_knows_every_category_and_fills_every_slot() -> None:
    kit = Kit.read()
    assert tuple(kit.templates) == CATEGORIES
    settings = TemplateSettings(counts=dict.fromkeys(CATEGORIES, 120), held=0.25)
    for prompt in read(Templates(settings))[0]:
        assert not any(f":{name}}}" in prompt.text for name in kit.lists)
        assert prompt.text.strip() == prompt.text


def test_no_source_text_of_a_held_prompt_is_ever_trained_on() -> None:
    settings = TemplateSettings(counts={"summarising": 200, "code": 120}, held=0.25)
    prompts, _ = read(Templates(settings))
    kit = Kit.read()
    for name in ("passages", "snippets"):
        for text in (t.rstrip("\n") for t in kit.lists[name]):
            assert len({p.pool for p in prompts if text in p.text}) <= 1
    held = {t.split("{")[0] for t in kit.templates["summarising"]["held"]} - {""}
    train = [p.text for p in prompts if p.pool is Pool.TRAIN]
    assert not any(text.startswith(tuple(held)) for text in train)


def test_the_kit_says_so_when_it_runs_out_and_names_the_nearest_category() -> None:
    _, tally = read(Templates(TemplateSettings(counts={"summarising": 5000}, held=0.0)))
    assert tally.notes[0].startswith("summarising: the kit has only")
    with pytest.raises(RecipeError, match="no category 'math'; did you mean 'maths'"):
        read(Templates(TemplateSettings(counts={"math": 1})))


@given(st.sets(st.integers().map(str), min_size=10, max_size=40).map(sorted))
def test_the_pools_share_no_word_and_lose_none(words: list[str]) -> None:
    train, held = pooled(words, Pool.TRAIN), pooled(words, Pool.HELD)
    assert not set(train) & set(held)
    assert sorted(train + held) == sorted(words)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Write a Python function that adds", "code"),
        ("Summarise this", "summarising"),
        ("Extract the names", "extraction"),
        ("How many apples are left?", "maths"),
        ("Why is the sky blue?", "reasoning"),
        ("Good morning", "chat"),
    ],
)
def test_a_prompt_without_a_category_gets_one_by_its_words(text: str, category: str) -> None:
    assert categorise(text) == category
