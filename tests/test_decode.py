"""Decoding equals plain decoding, whatever is drafted (T1, T2, T3, T3b, T13, T15, T16)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from breakeven.core import Draft, Finish, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Completion, Request
from breakeven.decode.round import accept, verify
from breakeven.decode.stopping import Stopper
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.hybrid import Hybrid
from breakeven.drafters.ngram import NGram
from breakeven.drafters.scripted import (
    AntiOracle,
    FlipAt,
    Oracle,
    RandomDrafter,
    Short,
    Synthetic,
)
from breakeven.drafters.suffix import Suffix
from breakeven.errors import DataError, DrafterError
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain
from tiny import FAMILIES, tiny_verifier

VOCAB = 64
Script = dict[tuple[int, ...], list[int]]
DRAFTERS: dict[str, Callable[[Script], Drafter]] = {
    "oracle": lambda s: Oracle(s, VOCAB),
    "anti-oracle": lambda s: AntiOracle(s, VOCAB),
    "flip-at-2": lambda s: FlipAt(s, VOCAB, 2),
    "short": lambda s: Short(s, VOCAB),
    "synthetic": lambda s: Synthetic(s, VOCAB, [0.7, 0.5]),
    "random": lambda s: RandomDrafter(VOCAB),
    "ngram": lambda s: NGram(),
    "suffix": lambda s: Suffix(),
    "hybrid": lambda s: Hybrid(Suffix(), Synthetic(s, VOCAB, [0.7, 0.5]), match=1),
}


def requests(count: int, seed: int = 0, longest: int = 24) -> list[Request]:
    """Random prompts of unequal length, with unequal budgets."""
    rng = random.Random(seed)
    return [
        Request(
            str(i),
            tuple(rng.randrange(VOCAB) for _ in range(rng.randrange(1, 20))),
            max_new_tokens=rng.randrange(1, longest),
        )
        for i in range(count)
    ]


def plain(verifier: Verifier, asked: list[Request]) -> dict[str, list[int]]:
    return {c.id: c.tokens for c in generate(verifier, asked)}


def script_of(asked: list[Request], answers: dict[str, list[int]]) -> Script:
    return {r.prompt: answers[r.id] for r in asked}


def naive(verifier: Verifier, request: Request) -> list[int]:
    """The slow obvious reference: the whole sequence through the model for every token."""
    tokens = list(request.prompt)
    for _ in range(request.max_new_tokens):
        cache = verifier.new_cache(1, len(tokens))
        ids = torch.tensor([tokens])
        out = verifier.run(Phase.PLAIN, chain(ids, cache.lengths), cache, Ledger())
        assert out.logits is not None
        tokens.append(int(out.logits[0, -1].argmax()))
        if tokens[-1] in request.eos:
            break
    return tokens[len(request.prompt) :]


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return tiny_verifier()


@pytest.fixture(scope="module")
def asked() -> list[Request]:
    return requests(20)


@pytest.fixture(scope="module")
def answers(verifier: Verifier, asked: list[Request]) -> dict[str, list[int]]:
    return plain(verifier, asked)


def test_plain_decoding_is_the_naive_loop(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]]
) -> None:
    for request in asked[:6]:
        assert answers[request.id] == naive(verifier, request)


@pytest.mark.parametrize("batch", [2, 3, 7])
def test_plain_batches_are_the_single_runs(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]], batch: int
) -> None:
    assert {c.id: c.tokens for c in generate(verifier, asked, batch=batch)} == answers


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("k", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", DRAFTERS)
def test_t1_every_drafter_gives_plain_decodings_tokens(
    verifier: Verifier,
    asked: list[Request],
    answers: dict[str, list[int]],
    name: str,
    k: int,
    batch: int,
) -> None:
    drafter = DRAFTERS[name](script_of(asked, answers))
    got = generate(verifier, asked, drafter=drafter, k=k, batch=batch)
    assert {c.id: c.tokens for c in got} == answers


@pytest.mark.parametrize("name", ["ngram", "suffix", "hybrid"])
def test_t1_repeating_prompts_and_an_immediate_end(verifier: Verifier, name: str) -> None:
    prompts = [(7, 8, 9) * 12, (5,) * 30, (1, 2) * 9]
    asked = [Request(str(i), p, 30) for i, p in enumerate(prompts)]
    expected = plain(verifier, asked)
    asked += [
        Request(f"ends {i}", p, 30, eos=frozenset({expected[str(i)][0]}))
        for i, p in enumerate(prompts)
    ]
    expected |= plain(verifier, asked[3:])
    assert all(len(expected[r.id]) == 1 for r in asked[3:])
    drafter = DRAFTERS[name](script_of(asked[:3], expected))
    done = list(generate(verifier, asked, drafter=drafter, k=16, batch=2))
    assert {c.id: c.tokens for c in done} == expected
    assert sum(r.drafted for c in done for r in c.rounds) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_t1_every_family(family: str) -> None:
    model, asked = tiny_verifier(family, seed=3), requests(4, seed=3)
    expected = plain(model, asked)
    drafter = FlipAt(script_of(asked, expected), VOCAB, 1)
    got = generate(model, asked, drafter=drafter, k=4, batch=3)
    assert {c.id: c.tokens for c in got} == expected


def test_oracle_commits_k_plus_one_and_anti_oracle_one_per_round(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]]
) -> None:
    script = script_of(asked, answers)
    long = [r for r in asked if r.max_new_tokens >= 10]
    for completion in generate(verifier, long, drafter=Oracle(script, VOCAB), k=4):
        assert [r.committed for r in completion.rounds[:-1]] == [5] * (len(completion.rounds) - 1)
    for completion in generate(verifier, long, drafter=AntiOracle(script, VOCAB), k=4):
        assert [r.committed for r in completion.rounds] == [1] * len(completion.rounds)
        assert all(r.accepted == 0 for r in completion.rounds)


def test_t2_end_of_sequence_inside_a_block(verifier: Verifier) -> None:
    prompt = (5, 9, 11)
    free = next(iter(generate(verifier, [Request("a", prompt, 12)]))).tokens
    at = next(i for i in range(2, 12) if free[i] not in free[:i])
    request = Request("a", prompt, 12, eos=frozenset({free[at]}))
    oracle = Oracle({prompt: free}, VOCAB)
    done = next(iter(generate(verifier, [request], drafter=oracle, k=8)))
    assert done.tokens == free[: at + 1]
    assert done.finish is Finish.STOP
    assert done.rounds[-1].accepted + 1 > done.rounds[-1].committed  # cut inside the block


@pytest.mark.parametrize(
    ("held", "cap", "block", "kept", "finish"),
    [
        ([], 5, [10, 11, 3, 20, 21, 22], [10, 11, 3], Finish.STOP),
        ([], 2, [10, 11, 3, 20, 21, 22], [10, 11], Finish.LENGTH),
        ([9] * 8, 10, [3, 20, 21], [9] * 8 + [3], Finish.STOP),
        ([], 3, [10, 11, 3, 20], [10, 11, 3], Finish.STOP),
    ],
)
def test_t3_a_stop_within_the_budget_wins(
    held: list[int], cap: int, block: list[int], kept: list[int], finish: Finish
) -> None:
    stopper = Stopper(Request("a", (1,), cap, eos=frozenset({3})), None, room=100)
    if held:
        assert stopper.take(held) == (len(held), None)
    count, reason = stopper.take(block)
    assert (stopper.tokens, reason) == (kept, finish)
    assert count == len(kept) - len(held)


class Letters:
    """A tokenizer of single letters."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(65 + i) for i in ids)


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_t3b_stop_strings_are_cut_as_in_one_token_decoding(size: int) -> None:
    ids = [ord(c) - 65 for c in "HELLOENDWORLDENDX"]
    stopper = Stopper(Request("a", (1,), 50, stop=("END",)), Letters(), room=100)
    for start in range(0, len(ids), size):
        _, finish = stopper.take(ids[start : start + size])
        if finish:
            break
    assert finish is Finish.STOP
    assert stopper.text() == "HELLO"
    assert len(stopper.tokens) == len("HELLOEND")


def test_t3b_stop_strings_through_generate(verifier: Verifier) -> None:
    prompt = (5, 9, 11)
    free = next(iter(generate(verifier, [Request("a", prompt, 16)]))).tokens
    stop = Letters().decode(free[6:9])
    request = Request("a", prompt, 16, stop=(stop,))
    one = next(iter(generate(verifier, [request], tokenizer=Letters())))
    oracle = Oracle({prompt: free}, VOCAB)
    many = next(iter(generate(verifier, [request], drafter=oracle, k=16, tokenizer=Letters())))
    assert (one.tokens, one.text, one.finish) == (many.tokens, many.text, many.finish)
    assert one.text is not None
    assert stop not in one.text


@pytest.mark.parametrize("j", range(5))
def test_t13_the_cache_after_a_rejection_is_a_fresh_prefills(verifier: Verifier, j: int) -> None:
    prompt = (5, 9, 11, 2)
    truth = next(iter(generate(verifier, [Request("a", prompt, 8)]))).tokens
    cache = verifier.new_cache(1, 32)
    rows = chain(torch.tensor([prompt]), cache.lengths)
    verifier.run(Phase.PREFILL, rows, cache, Ledger())
    cache.commit(len(prompt))
    context = Context(verifier, [[*prompt, truth[0]]], cache, Ledger())
    draft = truth[1:6]
    if j < len(draft):
        draft[j] = (draft[j] + 1) % VOCAB
    (outcome,), _ = verify(context, [Draft(tuple(draft))])
    assert outcome.accepted == j
    committed = [*prompt, *truth[: j + 1]]  # the new root's row is pending
    assert int(cache.lengths[0]) == len(committed)
    fresh = verifier.new_cache(1, 32)
    verifier.run(Phase.PREFILL, chain(torch.tensor([committed]), fresh.lengths), fresh, Ledger())
    size = len(committed)
    torch.testing.assert_close(cache.keys[..., :size, :], fresh.keys[..., :size, :])
    torch.testing.assert_close(cache.values[..., :size, :], fresh.values[..., :size, :])


@pytest.mark.parametrize("drafter", [None, "oracle", "random"])
def test_t15_the_context_limit_shortens_the_last_block(drafter: str | None) -> None:
    model = tiny_verifier(max_position_embeddings=16)
    prompt = tuple(range(13))
    expected = naive(model, Request("a", prompt, 3))
    chosen = DRAFTERS[drafter]({prompt: expected}) if drafter else None
    done = next(iter(generate(model, [Request("a", prompt, 50)], drafter=chosen, k=8)))
    assert done.tokens == expected
    assert done.finish is Finish.CONTEXT
    assert all(r.drafted <= 2 for r in done.rounds)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_drafter_drafts_for_one_call_at_a_time(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]], batch: int
) -> None:
    """The later call has it; the earlier one ends in a line and not in another's rows."""
    drafter = NGram()
    first, second = (generate(verifier, asked, drafter=drafter, batch=batch) for _ in range(2))
    done = [next(first), next(second)]
    with pytest.raises(DrafterError, match=r"'ngram' drafts for requests that came later; finish"):
        list(first)
    assert all(c.tokens == answers[c.id] for c in [*done, *second])


def test_scratch_rows_never_change_the_cache(verifier: Verifier) -> None:
    cache = verifier.new_cache(1, 32)
    verifier.run(Phase.PREFILL, chain(torch.tensor([[1, 2, 3]]), cache.lengths), cache, Ledger())
    cache.commit(3)
    before = cache.keys[..., :3, :].clone()
    verifier.run(Phase.DRAFT, chain(torch.tensor([[7, 8]]), cache.lengths), cache, Ledger())
    assert torch.equal(before, cache.keys[..., :3, :])
    assert int(cache.lengths[0]) == 3


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("x", ()), "empty"),
        (Request("x", tuple([1] * 2000)), "2,000 tokens"),
        (Request("x", (1,), max_new_tokens=0), "max_new_tokens"),
        (Request("x", (1, VOCAB)), "vocabulary of 64"),
        (Request("x", (1,), stop=("END",)), "tokenizer"),
    ],
)
def test_requests_that_cannot_run_say_why(
    verifier: Verifier, request_: Request, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        list(generate(verifier, [request_]))


def test_t28_the_ledger_counts_the_forwards_a_hook_counts(
    verifier: Verifier, asked: list[Request], answers: dict[str, list[int]], monkeypatch: object
) -> None:
    calls = 0
    body = verifier.body

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        return body(*args, **kwargs)  # type: ignore[arg-type]

    ledger = Ledger()
    verifier.body = counted  # type: ignore[method-assign, assignment]
    try:
        drafter = Synthetic(script_of(asked, answers), VOCAB, [0.5])
        done: list[Completion] = list(
            generate(verifier, asked[:5], drafter=drafter, k=3, ledger=ledger)
        )
    finally:
        verifier.body = body  # type: ignore[method-assign]
    assert calls == len(ledger.passes)
    assert ledger.committed == sum(len(c.tokens) - 1 for c in done)
    assert ledger.count(Phase.VERIFY) == len(ledger.rounds)


@given(
    draft=st.lists(st.integers(0, 5), max_size=6),
    choices=st.lists(st.integers(0, 5), min_size=7, max_size=7),
    free=st.integers(0, 1),
)
def test_acceptance_is_the_longest_agreeing_prefix(
    draft: list[int], choices: list[int], free: int
) -> None:
    free = min(free, len(draft))
    outcome = accept(Draft(tuple(draft), free), choices)
    agreed = [d == c for d, c in zip(draft[free:], choices, strict=False)]
    expected = free + (agreed.index(False) if False in agreed else len(agreed))
    assert outcome.accepted == expected
    assert outcome.token == choices[expected - free]
    assert outcome.tokens == (*draft[:expected], choices[expected - free])
