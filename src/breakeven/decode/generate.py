"""Continuations of many requests: plain or speculative, one or many at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from breakeven.cost.ledger import Ledger
from breakeven.counting import counted
from breakeven.decode.batch import Batch
from breakeven.decode.policy.base import Policy
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Completion, Request
from breakeven.drafters.base import Drafter
from breakeven.errors import DataError
from breakeven.verifier.interface import Verifier


def generate(
    verifier: Verifier,
    requests: Iterable[Request],
    *,
    drafter: Drafter | None = None,
    k: int = 4,
    policy: Policy | None = None,
    batch: int = 1,
    tokenizer: Any = None,
    ledger: Ledger | None = None,
    cache_bytes: int | None = None,
) -> Iterator[Completion]:
    """Continue every request greedily; completions come as they finish.

    At most ``batch`` requests run at once; a finished one leaves at once and the next enters.
    Without a ``drafter`` this is plain decoding; with one, each round drafts as many tokens as
    ``policy`` lets it, by default always ``k``. A policy that learns should be given to call after
    call. ``ledger`` collects passes, rounds and wall time; ``tokenizer`` is needed for texts
    and stop strings. ``cache_bytes`` bounds the memory for keys and values (see
    :mod:`breakeven.decode.budget`). Raises :class:`DataError` for a request that cannot be run, and
    :class:`DrafterError` where the drafter was given to another call before this one ended.
    """
    waiting = deque(requests)
    for request in waiting:
        check(request, verifier, tokenizer)
    if not waiting:
        return
    ledger = ledger if ledger is not None else Ledger()
    policy = policy if policy is not None else Fixed(k)
    if drafter is not None:
        policy.prepare(verifier, drafter)
    size = min(batch, len(waiting))
    with ledger.open():
        running = Batch(verifier, waiting, drafter, policy, size, tokenizer, ledger, cache_bytes)
    while waiting or running.size:
        with ledger.open():
            running.admit(waiting)
            done = running.retire()
            if running.size:
                running.step()
                done += running.retire()
        yield from done


def check(request: Request, verifier: Verifier, tokenizer: Any = None) -> None:
    """Raise :class:`DataError` for a request the verifier cannot run."""
    limit, vocabulary = verifier.shape.max_positions, verifier.shape.vocab_size
    name, prompt = f"request '{request.id}'", request.prompt
    if not prompt:
        raise DataError(f"{name}: the prompt is empty; give at least one token")
    if len(prompt) >= limit:
        raise DataError(
            f"{name}: the prompt has {counted(len(prompt), 'token')}, the model takes {limit} "
            "with the "
            "answer; shorten it"
        )
    if request.max_new_tokens < 1:
        raise DataError(f"{name}: max_new_tokens is {request.max_new_tokens}; give at least 1")
    if min(prompt) < 0 or max(prompt) >= vocabulary:
        raise DataError(
            f"{name}: token ids {min(prompt)}..{max(prompt)} do not fit the verifier's vocabulary "
            f"of {vocabulary}; tokenize with this verifier's tokenizer"
        )
    if request.stop and tokenizer is None:
        raise DataError(f"{name}: stop strings need the tokenizer; pass tokenizer=")
