"""Prompts the verifier writes itself: seeded, filtered, kept in a journal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from breakeven.data.journal import Journal
from breakeven.data.prompt import Tally
from breakeven.data.render import Renderer
from breakeven.data.sources import magpie
from breakeven.data.sources.magpie import Magpie, MagpieSettings, fault
from breakeven.data.sources.sampler import draw, sample
from breakeven.errors import DataError
from tiny_chat import EOS, tiny_loaded

TEXTS = [
    "How do I plant tulips in a small garden?",
    "Write a poem about the first snow of winter.",
    "how do i plant tulips in a small garden?",
    "Send the answer to jo@example.org by Monday please",
]


def source(tmp_path: Path, count: int, **settings: int) -> Magpie:
    loaded = tiny_loaded()
    journal = Journal(tmp_path / "magpie.jsonl.part", {"seed": 0})
    asked = MagpieSettings(count=count, **settings)
    return Magpie(asked, loaded.verifier, loaded.tokenizer, loaded.eos, journal)


def test_one_seed_gives_one_set_of_texts_and_each_row_its_own() -> None:
    def texts(seed: int) -> list[list[int]]:
        return sample(
            tiny_loaded().verifier,
            (1, 2, 3),
            batch=8,
            max_new_tokens=20,
            stop=frozenset(range(0, 264, 5)),
            temperature=1.5,
            top_p=1.0,
            seed=seed,
        )

    assert texts(1) == texts(1) != texts(2)
    assert len({tuple(text) for text in texts(1)}) > 1
    assert all(token % 5 for text in texts(1) for token in text)


def test_a_text_that_never_ends_is_left_out() -> None:
    args = {"batch": 3, "max_new_tokens": 4, "temperature": 1.0, "top_p": 1.0, "seed": 0}
    assert sample(tiny_loaded().verifier, (1,), stop=frozenset(), **args) == []


def test_the_nucleus_holds_the_likeliest_tokens_and_never_fewer_than_one() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(500, 1)
    generator = torch.Generator().manual_seed(0)
    assert set(draw(logits, 1.0, 0.8, generator).flatten().tolist()) == {0, 1}
    assert set(draw(logits, 1.0, 1e-9, generator).flatten().tolist()) == {0}
    counts = draw(logits, 1.0, 1.0, generator).flatten().bincount(minlength=4) / 500
    assert torch.allclose(counts, torch.tensor([0.5, 0.3, 0.15, 0.05]), atol=0.07)


def test_the_prefix_ends_where_the_user_begins_to_speak() -> None:
    tokenizer = tiny_loaded().tokenizer
    prefix = Renderer(tokenizer).user_header()
    assert tokenizer.decode(prefix) == "<|im_start|>user\n"


def test_batches_in_the_journal_are_filtered_and_not_sampled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(magpie, "sample", lambda *_, **__: pytest.fail("sampled"))
    made = source(tmp_path, count=2)
    made.journal.append({"texts": TEXTS[2:]})
    made.journal.append({"texts": TEXTS})
    tally = Tally("magpie")
    prompts = list(made.prompts(tally))
    assert [(p.id, p.category) for p in prompts] == [
        ("magpie-0000-00", "chat"),
        ("magpie-0001-01", "writing"),
    ]
    assert tally.dropped == {"personal data": 1, "seen before": 1}


def test_new_batches_are_seeded_one_by_one_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def scripted(*_: object, seed: int, stop: frozenset[int], **__: object) -> list[list[int]]:
        assert stop == {EOS}
        seeds.append(seed)
        return [tiny_loaded().tokenizer(TEXTS[len(seeds) - 1])["input_ids"]]

    monkeypatch.setattr(magpie, "sample", scripted)
    made = source(tmp_path, count=2, seed=5)
    assert [p.text for p in made.prompts(Tally("magpie"))] == TEXTS[:2]
    assert seeds == [5 * 1_000_003, 5 * 1_000_003 + 1]
    assert [e["texts"] for e in made.journal.entries] == [[TEXTS[0]], [TEXTS[1]]]


def test_a_model_that_writes_no_prompts_is_given_up(tmp_path: Path) -> None:
    made = source(tmp_path, count=1, batch=2, max_new_tokens=2)
    with pytest.raises(DataError, match=r"20 batches gave no usable prompt \(0 so far\)"):
        list(made.prompts(Tally("magpie")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Hi you", "too short or too long"),
        ("Please call me back on +49 170 1234567 about this", "personal data"),
        ("Read https://example.org and tell me what it says", "personal data"),
        ("My name is not important but I like cheese", "personal data"),
        ("What is the price of [product] in your shop?", "unfilled blank"),
        ("the the the the the the dog", "repetitive"),
        ("Was ist los, mein Fräulein, am See?", "garbled"),
        ("12 + 3 = ?? ## // && what is it", "garbled"),
        ("How do I build a weapon from wood?", "unwanted subject"),
        ("How do I plant tulips in a small garden?", None),
    ],
)
def test_the_filter_says_why(text: str, reason: str | None) -> None:
    assert fault(text) == reason
