"""Memory for keys and values is stated before decoding, and bounded."""

from __future__ import annotations

import pytest
import torch

from breakeven.decode.budget import plan_cache, row_bytes
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.ngram import NGram
from breakeven.errors import DataError, ModelError
from breakeven.verifier.interface import Verifier
from breakeven.verifier.precision import check_dtype, dtype_named
from tiny import tiny_verifier

REQUESTS = [Request(str(i), tuple(range(1, 4 + 2 * i)), 4 + i) for i in range(5)]


@pytest.fixture
def verifier() -> Verifier:
    return tiny_verifier(dtype=torch.float32, vocab=32)


def test_the_plan_is_what_is_allocated(verifier: Verifier) -> None:
    plan = plan_cache(verifier, REQUESTS, batch=3, drafter=NGram(), k=4)
    assert (plan.slots, plan.rows) == (3, 11 + 8 + 5)
    assert plan.nbytes == verifier.new_cache(plan.slots, plan.rows).nbytes


def test_a_budget_lets_fewer_requests_run_at_once(verifier: Verifier) -> None:
    one = plan_cache(verifier, REQUESTS, batch=1).nbytes
    plan = plan_cache(verifier, REQUESTS, batch=5, limit=2 * one + 1)
    assert plan.slots == 2
    assert plan.nbytes <= 2 * one + 1


def test_answers_do_not_depend_on_the_budget(verifier: Verifier) -> None:
    one = plan_cache(verifier, REQUESTS, batch=1, drafter=NGram(), k=3).nbytes
    free = {a.id: a.tokens for a in generate(verifier, REQUESTS, batch=5)}
    bound = generate(verifier, REQUESTS, drafter=NGram(), k=3, batch=5, cache_bytes=2 * one)
    assert {a.id: a.tokens for a in bound} == free


def test_a_request_that_does_not_fit_alone_is_refused_with_the_arithmetic(
    verifier: Verifier,
) -> None:
    each = row_bytes(verifier)
    with pytest.raises(
        DataError, match=rf"11 prompt tokens, up to 8 .* 1 request × 20 rows × {each} b"
    ):
        list(generate(verifier, REQUESTS, batch=5, cache_bytes=19 * each))


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ModelError, match="dtype 'bf15': did you mean 'bf16'"):
        dtype_named("bf15")
    with pytest.raises(ModelError, match="dtype int8: a verifier decodes in fp32"):
        check_dtype(torch.int8, torch.device("cpu"))


def test_emulated_types_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.warns(UserWarning, match="bf16 on this processor is emulated.*avx512_bf16"):
        check_dtype(torch.bfloat16, torch.device("cpu"))


@pytest.mark.filterwarnings("error")
def test_types_the_processor_multiplies_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    check_dtype(torch.bfloat16, torch.device("cpu"))
    check_dtype(torch.float32, torch.device("cpu"))
