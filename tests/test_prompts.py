"""De-duplication, rendering and the split: nothing leaks from training into the test."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.data.prompt import Message, Pool, Prompt, Tally, deduplicated, fingerprint
from breakeven.data.render import Rendered, Renderer
from breakeven.data.split import shares, split
from breakeven.errors import DataError
from tiny_chat import THINKING, byte_tokenizer


def prompt(text: str, name: str = "p", pool: Pool = Pool.ANY) -> Prompt:
    return Prompt(name, "chat", (Message("user", text),), pool)


@pytest.mark.parametrize("other", ["What is it?", "  what IS\n it? ", "What is it\uff1f"])
def test_prompts_that_read_the_same_are_duplicates(other: str) -> None:
    unique, removed = deduplicated([prompt("What is it?", "a"), prompt(other, "b")])
    assert [p.id for p in unique] == ["a"]
    assert removed == 1


def test_a_system_turn_makes_another_prompt() -> None:
    with_system = Prompt("s", "chat", (Message("system", "Be brief"), Message("user", "Hi")))
    assert fingerprint(with_system) != fingerprint(prompt("Hi"))


@given(st.lists(st.sampled_from(["a", "A ", "b", "B", "c  d", "C D", "e"]), max_size=30))
def test_deduplication_keeps_the_first_of_each_kind(texts: list[str]) -> None:
    prompts = [prompt(text, str(i)) for i, text in enumerate(texts)]
    unique, removed = deduplicated(prompts)
    assert len(unique) + removed == len(texts)
    assert len({fingerprint(p) for p in unique}) == len(unique)
    assert {fingerprint(p) for p in prompts} == {fingerprint(p) for p in unique}
    assert deduplicated(unique) == (unique, 0)


def test_a_prompt_is_rendered_by_the_models_template_up_to_its_answer() -> None:
    tokenizer = byte_tokenizer()
    ids = Renderer(tokenizer).ids((Message("system", "Be brief"), Message("user", "Hi")))
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_thinking_is_switched_off_where_the_template_knows_it() -> None:
    text = Renderer(byte_tokenizer(THINKING)).text((Message("user", "Hi"),))
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_prompt_is_an_error_and_counted_in_a_list(text: str) -> None:
    renderer = Renderer(byte_tokenizer())
    with pytest.raises(DataError, match="the prompt is empty; give at least one word"):
        renderer.ids((Message("user", text),))
    tally = Tally("rendering")
    assert [r.id for r in renderer.render([prompt(text, "a"), prompt("Hi", "b")], tally)] == ["b"]
    assert tally.dropped == {"empty prompt": 1}


def test_an_over_long_prompt_is_dropped_and_counted_and_the_longest_allowed_is_kept() -> None:
    length = len(Renderer(byte_tokenizer()).ids((Message("user", "x" * 20),)))
    tally = Tally("rendering")
    prompts = [prompt("x" * 20, "fits"), prompt("x" * 21, "does not")]
    rows = Renderer(byte_tokenizer(), max_prompt=length).render(prompts, tally)
    assert [row.id for row in rows] == ["fits"]
    assert len(rows[0].prompt_ids) == length
    assert tally.dropped == {f"longer than {length} tokens": 1}


def test_a_tokenizer_without_a_template_is_refused() -> None:
    with pytest.raises(DataError, match="no chat template; use an instruct model"):
        Renderer(byte_tokenizer(None)).ids((Message("user", "Hi"),))


def rows(sizes: dict[str, int], pool: Pool = Pool.ANY) -> list[Rendered]:
    return [
        Rendered(f"{category}-{pool}-{i:03d}", category, pool, (i,))
        for category, size in sizes.items()
        for i in range(size)
    ]


def test_the_split_is_stratified_and_repeats_with_its_seed() -> None:
    given_rows = rows({"chat": 60, "maths": 40})
    parts = split(given_rows, validation=10, test=20, seed=1)
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 70,
        "validation": 10,
        "test": 20,
    }
    assert Counter(r.category for r in parts["test"]) == {"chat": 12, "maths": 8}
    assert Counter(r.category for r in parts["validation"]) == {"chat": 6, "maths": 4}
    assert split(given_rows[::-1], validation=10, test=20, seed=1) == parts
    assert split(given_rows, validation=10, test=20, seed=2) != parts


def test_held_prompts_are_never_trained_on_and_training_prompts_never_tested() -> None:
    held, train = rows({"chat": 12}, Pool.HELD), rows({"chat": 30}, Pool.TRAIN)
    parts = split(held + train + rows({"maths": 20}), validation=4, test=4, seed=0)
    assert not any(r.pool is Pool.HELD for r in parts["train"])
    assert not any(r.pool is Pool.TRAIN for r in parts["validation"] + parts["test"])
    left_out = len(held) - sum(r.pool is Pool.HELD for r in parts["validation"] + parts["test"])
    assert sum(map(len, parts.values())) == 62 - left_out


@given(
    sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 40), min_size=1),
    held=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 40)),
    validation=st.integers(0, 12),
    test=st.integers(0, 12),
    seed=st.integers(0, 5),
)
def test_every_split_has_its_size_and_no_row_twice(
    sizes: dict[str, int], held: dict[str, int], validation: int, test: int, seed: int
) -> None:
    everything = rows(sizes) + rows(held, Pool.HELD)
    if len(everything) <= validation + test:
        with pytest.raises(DataError, match="add prompts or lower split"):
            split(everything, validation=validation, test=test, seed=seed)
        return
    parts = split(everything, validation=validation, test=test, seed=seed)
    assert len(parts["validation"]) == validation
    assert len(parts["test"]) == test
    ids = [r.id for part in parts.values() for r in part]
    assert len(ids) == len(set(ids))
    missing = {r.id for r in everything} - set(ids)
    assert all("held" in name for name in missing)


@given(
    sizes=st.dictionaries(st.text("abc", min_size=1), st.integers(1, 50), min_size=1),
    share=st.floats(0, 1),
)
def test_shares_add_up_and_stay_near_their_proportion(sizes: dict[str, int], share: float) -> None:
    total = int(share * sum(sizes.values()))
    given_ = shares(sizes, total, sizes)
    assert sum(given_.values()) == total
    for name, size in sizes.items():
        assert given_[name] <= size
        assert abs(given_[name] - total * size / sum(sizes.values())) < len(sizes)
