"""The requests being decoded: slots 0..n-1 of one cache, in step.

A finished request leaves at once; the last one is moved into its place, so the active requests
are always a window at the front of the cache.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from breakeven.core import Choice, Finish, Phase, Round, Verified
from breakeven.cost.ledger import Ledger
from breakeven.decode.budget import plan_cache
from breakeven.decode.policy.base import Policy, Prospect
from breakeven.decode.prefill import prefill
from breakeven.decode.request import Completion, Request
from breakeven.decode.resident import resident_round
from breakeven.decode.round import padded_chain, speculative_round
from breakeven.decode.stopping import Stopper
from breakeven.drafters.base import Context, Drafter
from breakeven.errors import DrafterError
from breakeven.verifier.interface import Verifier


@dataclass(slots=True)
class Slot:
    """One running request."""

    stopper: Stopper
    completion: Completion
    started: float  # when its prefill was over
    finished: bool = False

    def take(self, block: Sequence[int]) -> int:
        """Give it committed tokens; returns how many count."""
        kept, finish = self.stopper.take(block)
        if finish is not None:
            self.finished = True
            self.completion.finish = finish
            self.completion.decode_s = time.perf_counter() - self.started
            self.completion.tokens = self.stopper.tokens
            self.completion.text = self.stopper.text()
        return kept


class Batch:
    """Up to ``size`` requests decoded together."""

    def __init__(
        self,
        verifier: Verifier,
        requests: Iterable[Request],
        drafter: Drafter | None,
        policy: Policy,
        size: int,
        tokenizer: Any,
        ledger: Ledger,
        cache_bytes: int | None = None,
    ) -> None:
        """``cache_bytes`` bounds the cache, and with it how many requests run at once.

        The drafter is this batch's from now on: a :class:`DrafterError` ends one that had it.
        """
        self._verifier, self._drafter, self._policy = verifier, drafter, policy
        plan = plan_cache(
            verifier, requests, batch=size, drafter=drafter, k=policy.longest, limit=cache_bytes
        )
        self._tokenizer, self._limit = tokenizer, plan.slots
        self._cache = verifier.new_cache(plan.slots, plan.rows)
        self._context = Context(verifier, [], self._cache.window(0, 0), ledger)
        self._slots: list[Slot] = []
        self._turn = object()
        if drafter is not None:
            drafter.turn = self._turn
            drafter.reserve(plan.slots, plan.rows)

    @property
    def size(self) -> int:
        """Number of running requests."""
        return len(self._slots)

    def admit(self, waiting: deque[Request]) -> None:
        """Prefill as many waiting requests as there are free slots."""
        self._check_turn()
        start = self.size
        entering = [waiting.popleft() for _ in range(min(self._limit - start, len(waiting)))]
        if not entering:
            return
        began = time.perf_counter()
        hidden, first = self._prefill(start, [list(r.prompt) for r in entering])
        now = time.perf_counter()
        for slot, (request, token) in enumerate(zip(entering, first, strict=True), start):
            room = self._verifier.shape.max_positions - len(request.prompt)
            stopper = Stopper(request, self._tokenizer, room)
            completion = Completion(request.id, [], Finish.LENGTH, prefill_s=now - began)
            self._slots.append(Slot(stopper, completion, now))
            self._slots[slot].take([token])
            self._context.tokens[slot].append(token)
            self._context.ends.append(request.eos)
        if self._drafter is not None:
            self._drafter.begin(
                self._context, start, hidden if self._drafter.needs_hidden else None
            )

    def _prefill(self, start: int, prompts: list[list[int]]) -> tuple[Tensor, list[int]]:
        """Cache the prompts in slots ``start..``; returns hidden states and first tokens."""
        context, stop = self._context, start + len(prompts)
        window = self._cache.window(start, stop)
        found = prefill(self._verifier, window, prompts, context.ledger)
        context.tokens.extend(prompts)
        context.cache = self._cache.window(0, stop)
        return found

    def step(self) -> None:
        """One round, or one plain step, of every running request."""
        self._check_turn()
        if self._drafter is None:
            self._plain_step()
            return
        start, bought = time.perf_counter(), len(self._context.ledger.passes)
        play = resident_round if self._verifier.resident else speculative_round
        outlook, outcomes = play(
            self._context,
            self._drafter,
            self._policy,
            [slot.completion.id for slot in self._slots],
            [slot.stopper.remaining for slot in self._slots],
        )
        seconds = time.perf_counter() - start
        rounds = [
            self._account(slot, prospect, outcome, outlook.choice, seconds)
            for slot, prospect, outcome in zip(
                self._slots, outlook.prospects, outcomes, strict=True
            )
        ]
        self._policy.observe(self._context.ledger.passes[bought:], rounds)

    def _check_turn(self) -> None:
        if self._drafter is not None and self._drafter.turn is not self._turn:
            raise DrafterError(
                f"'{self._drafter.name}' drafts for requests that came later; finish one "
                "generate() before the next, or give each a drafter of its own"
            )

    def _plain_step(self) -> None:
        context = self._context
        roots = [tokens[-1:] for tokens in context.tokens]
        layout = padded_chain(context, roots)
        out = self._verifier.run(
            Phase.PLAIN, layout, context.cache, context.ledger, logits="choices", wait=False
        )
        assert out.choices is not None
        context.cache.commit(1)
        chosen = out.choices[:, 0].tolist()  # waits for the pass
        context.ledger.settle()
        for slot, tokens, token in zip(self._slots, context.tokens, chosen, strict=True):
            tokens.append(token)
            slot.take([token])

    def _account(
        self, slot: Slot, prospect: Prospect, outcome: Verified, choice: Choice, seconds: float
    ) -> Round:
        draft, kept = outcome.draft, slot.take(outcome.tokens)
        entry = Round(
            prospect.request,
            max(draft.depths, default=0) if draft.parents else len(draft.tokens),
            outcome.accepted,
            kept,
            draft.free,
            choice,
            prospect.match,
            prospect.offered,
            seconds,
            () if draft.parents else draft.confidences,
        )
        slot.completion.rounds.append(entry)
        self._context.ledger.rounds.append(entry)
        return entry

    def retire(self) -> list[Completion]:
        """Take the finished requests out and close the gaps."""
        done = []
        for index in reversed(range(self.size)):
            if self._slots[index].finished:
                done.append(self._slots[index].completion)
                self._end(index)
                self._remove(index)
        if done:
            self._context.cache = self._cache.window(0, self.size)
        return done[::-1]

    def _end(self, index: int) -> None:
        if self._drafter is not None:
            self._drafter.end(self._context, index)
            self._policy.end(self._slots[index].completion.id)

    def _remove(self, index: int) -> None:
        last = self.size - 1
        if index != last:
            self._slots[index] = self._slots[last]
            self._context.tokens[index] = self._context.tokens[last]
            self._context.ends[index] = self._context.ends[last]
            self._cache.move(last, index)
            if self._drafter is not None:
                self._drafter.move(last, index)
        self._slots.pop()
        self._context.tokens.pop()
        self._context.ends.pop()
