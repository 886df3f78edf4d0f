"""One timed run of one prompt, and the warming up before the first."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.base import Policy
from breakeven.decode.request import Completion, Request
from breakeven.drafters.base import Drafter
from breakeven.measure.configuration import PLAIN
from breakeven.measure.prompts import Prompt
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain

WARM_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Method:
    """A way to decode, ready to run: plain decoding by default."""

    name: str = PLAIN
    drafter: Drafter | None = None
    k: int = 0
    policy: Policy | None = None  # None: always k


@dataclass(frozen=True, slots=True)
class Decoding:
    """What all methods share: the verifier and when an answer ends."""

    verifier: Verifier
    eos: frozenset[int]
    max_new_tokens: int

    def run(
        self, method: Method, prompt: Prompt, *, max_new_tokens: int | None = None
    ) -> tuple[Completion, Ledger]:
        """Decode one prompt alone, with a ledger of its own.

        Drafters forget earlier answers first, since repeats ask the same again; a policy goes on
        with what it has learned of prices and survival.
        """
        if method.drafter is not None:
            method.drafter.forget()
        request = Request(
            id=prompt.id,
            prompt=tuple(prompt.prompt_ids),
            max_new_tokens=max_new_tokens or self.max_new_tokens,
            eos=self.eos,
        )
        ledger = Ledger()
        [completion] = generate(
            self.verifier,
            [request],
            drafter=method.drafter,
            k=max(1, method.k),
            policy=method.policy,
            ledger=ledger,
        )
        return completion, ledger


def warm_up(decoding: Decoding, candidates: Sequence[Method], prompt: Prompt) -> dict[str, Ledger]:
    """Run every method and every verify width once, so that nothing is compiled while timed.

    Returns each method's ledger of a second, warm, short run: what an estimate needs.
    """
    widest = min(max(m.k for m in candidates) + 1, decoding.max_new_tokens)  # drafts end there
    widths(decoding.verifier, range(1, widest + 1))
    tokens = min(WARM_TOKENS, decoding.max_new_tokens)
    for method in candidates:
        decoding.run(method, prompt, max_new_tokens=tokens)
    return {m.name: decoding.run(m, prompt, max_new_tokens=tokens)[1] for m in candidates}


def widths(verifier: Verifier, rows: Iterable[int]) -> None:
    """One pass of each width over an empty cache."""
    for width in rows:
        cache = verifier.new_cache(1, width)
        tokens = torch.zeros(1, width, dtype=torch.long)
        verifier.run(Phase.VERIFY, chain(tokens, cache.lengths), cache, Ledger())


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep Python's garbage collector from walking over the loaded model while timed."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
