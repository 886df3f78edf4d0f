"""A small seeded sampler: many different continuations of one prefix, in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain

CANDIDATES = 200


def sample(
    verifier: Verifier,
    prefix: Sequence[int],
    *,
    batch: int,
    max_new_tokens: int,
    stop: frozenset[int],
    temperature: float,
    top_p: float,
    seed: int,
) -> list[list[int]]:
    """``batch`` sampled continuations of ``prefix`` (token ids), without the stop token.

    A continuation that met no stop token within ``max_new_tokens`` is left out. The same seed
    gives the same texts on the same machine.
    """
    generator = torch.Generator().manual_seed(seed)
    cache = verifier.new_cache(batch, len(prefix) + max_new_tokens)
    ledger = Ledger()
    tokens = torch.tensor(prefix).repeat(batch, 1)
    ended: list[list[int] | None] = [None] * batch
    texts: list[list[int]] = [[] for _ in range(batch)]
    phase = Phase.PREFILL
    for _ in range(max_new_tokens):
        last = torch.full((batch,), tokens.shape[1] - 1)
        rows = chain(tokens, cache.lengths)
        out = verifier.run(phase, rows, cache, ledger, logits=last)
        assert out.logits is not None
        cache.commit(tokens.shape[1])
        tokens = draw(out.logits[:, 0].float().cpu(), temperature, top_p, generator)
        for i, token in enumerate(tokens[:, 0].tolist()):
            if token in stop and ended[i] is None:
                ended[i] = list(texts[i])
            texts[i].append(token)
        if all(text is not None for text in ended):
            break
        phase = Phase.PLAIN
    return [text for text in ended if text is not None]


def draw(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """One token for each row of ``[B, V]`` logits, ``[B, 1]``: nucleus sampling in the top 200.

    >>> draw(torch.tensor([[0.0, 9.0]]), 1.0, 0.5, torch.Generator()).tolist()
    [[1]]
    """
    best, index = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    probabilities = torch.softmax(best / temperature, dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    nucleus = probabilities.masked_fill(before >= top_p, 0.0)
    choice = torch.multinomial(nucleus, 1, generator=generator)
    return index.gather(-1, choice)
