"""Breakeven, under the same conditions as its peers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.peers.workers.channel import Engine, Task, serve
from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.base import Policy
from breakeven.decode.policy.named import policy_named
from breakeven.decode.request import Request
from breakeven.drafters.registry import create
from breakeven.verifier.load import load_verifier
from breakeven.verifier.rows import chain


class Breakeven(Engine):
    """The verifier, and the drafter of the mode."""

    package = "breakeven"

    def __init__(self, task: Task) -> None:
        self._loaded = load_verifier(str(task.model), threads=task.threads)
        self._drafter, self._policy, self._batch = None, policy_for(task), task.batch
        if task.mode in ("lookup", "adaptive"):
            self._drafter = create("ngram", self._loaded)
        elif task.mode == "hybrid":
            self._drafter = create("hybrid", self._loaded)
        elif task.mode != "plain":
            name, _, folder = task.drafter.partition("=")
            self._drafter = create(name, self._loaded, folder or None)

    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """All prompts at once."""
        requests = [
            Request(str(index), tuple(prompt), count, self._loaded.eos)
            for index, prompt in enumerate(prompts)
        ]
        done = generate(
            self._loaded.verifier,
            requests,
            drafter=self._drafter,
            policy=self._policy,
            batch=self._batch,
        )
        tokens = {answer.id: answer.tokens for answer in done}
        return [tokens[request.id] for request in requests]

    def prepare(self, context: int, rows: int) -> Callable[[], object]:
        """A verify pass, arg-max of all rows included."""
        verifier = self._loaded.verifier
        cache = verifier.new_cache(1, context + rows)
        ids = torch.randint(verifier.shape.vocab_size, (1, context + rows))
        prompt = chain(ids[:, :context], cache.lengths)
        verifier.run(Phase.PREFILL, prompt, cache, Ledger(), logits="none")
        cache.commit(context)
        layout = chain(ids[:, context:], cache.lengths)
        return lambda: verifier.run(Phase.VERIFY, layout, cache, Ledger(), logits="choices")


def policy_for(task: Task) -> Policy:
    """K chosen in each round for ``adaptive`` and ``hybrid``, else always the task's."""
    if task.mode in ("adaptive", "hybrid"):
        return policy_named("adaptive")
    return policy_named("fixed", task.draft_tokens)


if __name__ == "__main__":
    serve(Breakeven)
