"""The lookup drafters: what they find, what they remember, and how much of it."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.cost.ledger import Ledger
from breakeven.drafters.automaton import Match, SuffixAutomaton
from breakeven.drafters.base import Context
from breakeven.drafters.ngram import Index, NGram
from breakeven.drafters.suffix import Suffix
from tiny import tiny_verifier

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def context(tokens: list[list[int]]) -> Context:
    verifier = tiny_verifier()
    return Context(verifier, tokens, verifier.new_cache(len(tokens), 1), Ledger())


def built(text: list[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token in text:
        automaton.add(token)
    return automaton


def occurrences(text: list[int], part: list[int]) -> list[int]:
    """Where ``part`` ends in ``text``: the slow obvious reference."""
    size = len(part)
    return [i + size for i in range(len(text) - size + 1) if text[i : i + size] == part]


@given(TEXTS)
@settings(max_examples=200)
def test_the_longest_repeated_end_is_found(text: list[int]) -> None:
    longest = max(
        (n for n in range(len(text)) if len(occurrences(text, text[len(text) - n :])) > 1),
        default=0,
    )
    assert built(text).repeated().length == longest
    assert len(built(text)) <= 2 * len(text) + 1


@given(TEXTS)
@settings(max_examples=200)
def test_the_likeliest_next_token_is_the_most_frequent_one(text: list[int]) -> None:
    automaton = built(text)
    match = automaton.repeated()
    if not match.length:
        return
    end = text[len(text) - match.length :]
    followed = Counter(text[i] for i in occurrences(text, end) if i < len(text))
    tokens, shares = automaton.follow(match, 1, least=0.0)
    assert followed[tokens[0]] == max(followed.values())
    assert shares[0] == followed[tokens[0]] / followed.total()


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=200)
def test_a_match_of_another_text_survives_the_growth_of_the_automaton(
    first: list[int], second: list[int], other: list[int]
) -> None:
    automaton, match = built(first), Match()
    for token in other:
        match = automaton.step(match, token)
    ends = [n for n in range(len(other) + 1) if occurrences(first, other[len(other) - n :])]
    assert match.length == max(ends)
    for token in second:
        automaton.add(token)
    match = automaton.settled(match)
    end = other[len(other) - match.length :]
    text = first + second
    followed = Counter(text[i] for i in occurrences(text, end) if i < len(text))
    if match.length and followed:
        tokens, _ = automaton.follow(match, 1, least=0.0)
        assert followed[tokens[0]] == max(followed.values())


@given(TEXTS)
@settings(max_examples=200)
def test_the_ngram_index_finds_the_latest_of_the_longest(text: list[int]) -> None:
    start, match = Index(range(3, 0, -1)).find(text)
    for size in (3, 2, 1):
        ends = [i for i in occurrences(text, text[-size:]) if i < len(text)]
        if size <= len(text) and ends:
            assert start == ends[-1]
            assert match >= size
            assert text[start - match : start] == text[len(text) - match :]
            return
    assert match == 0


def test_an_index_that_grows_with_the_text_finds_what_a_fresh_one_finds() -> None:
    rng, index, text = random.Random(0), Index(range(3, 0, -1)), [0]
    for _ in range(200):
        text += [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
        assert index.find(text) == Index(range(3, 0, -1)).find(text)


def test_a_short_continuation_is_taken_as_it_is() -> None:
    drafter = NGram()
    drafter.reserve(1, 64)
    asked = context([[1, 2, 3, 4, 1, 2, 3]])
    drafter.begin(asked, 0, None)
    (draft,) = drafter.glimpse(asked, 16)
    assert draft.tokens == (4, 1, 2, 3)
    assert draft.match == 3


def answered(drafter: Suffix, prompt: list[int], answer: list[int]) -> None:
    """One whole request through the drafter."""
    asked = context([[*prompt, answer[0]]])
    drafter.reserve(1, 64)
    drafter.begin(asked, 0, None)
    for token in answer[1:]:
        drafter.glimpse(asked, 4)
        asked.tokens[0].append(token)
    drafter.end(asked, 0)


def test_suffix_remembers_answers_but_not_prompts_nor_across_answers() -> None:
    drafter = Suffix()
    answered(drafter, [50, 51, 52], [10, 11, 12, 13])
    answered(drafter, [53], [20, 21])
    asked = context([[1, 10, 11], [2, 50, 51], [3, 12, 13]])
    drafter.reserve(3, 64)
    drafter.begin(asked, 0, None)
    first, second, third = drafter.glimpse(asked, 4)
    assert first.tokens == (12, 13)
    assert (first.match, second.tokens) == (2, ())
    assert third.tokens == ()  # what follows is the end of that answer, no token
    drafter.forget()
    assert [d.tokens for d in drafter.glimpse(asked, 4)] == [(), (), ()]


def test_suffix_draws_no_more_than_its_match_allows() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    drafter = Suffix(factor=2.0)
    asked = context([[*text, 99, 1], [*text, 99, 1, 2, 3]])
    drafter.reserve(2, 64)
    drafter.begin(asked, 0, None)
    short, long = drafter.glimpse(asked, 16)
    assert short.tokens == (2, 3)
    assert long.tokens == (4, 5, 6, 7, 8, 9)


def test_suffix_stops_where_the_text_went_different_ways() -> None:
    drafter = Suffix(least=0.6)
    asked = context([[1, 2, 3, 1, 2, 4, 7, 1, 2]])
    drafter.reserve(1, 64)
    drafter.begin(asked, 0, None)
    (draft,) = drafter.glimpse(asked, 8)
    assert draft.tokens == ()  # 3 and 4 followed once each
    assert draft.match == 2


def test_the_memory_of_suffix_is_bounded_and_keeps_the_latest() -> None:
    rng, drafter = random.Random(1), Suffix(shared_states=400)
    last: list[int] = []
    for _ in range(60):
        last = [rng.randrange(1000) for _ in range(20)]
        answered(drafter, [5], last)
        assert len(drafter._shared) <= 400
    asked = context([[1, *last[:3]]])
    drafter.reserve(1, 64)
    drafter.begin(asked, 0, None)
    assert drafter.glimpse(asked, 4)[0].tokens == tuple(last[3:7])
