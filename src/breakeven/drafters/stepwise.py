"""Drafting token by token over the verifier's own cache, with a cheaper pass of its kind."""

from __future__ import annotations

from abc import abstractmethod

import torch

from breakeven.core import Draft
from breakeven.drafters.base import Context, Drafter
from breakeven.verifier.interface import Output
from breakeven.verifier.rows import Rows, chain


class Stepwise(Drafter):
    """``k`` passes of one row draft ``k`` tokens.

    Each reads the verifier's keys and values of the committed tokens. What the passes write behind
    the cache's length is scratch, seen by the next of them and written anew by the verify pass.
    """

    sequential = True

    @abstractmethod
    def step(self, context: Context, rows: Rows) -> Output:
        """A draft pass over one row of each request, with the row's arg-max in ``choices``."""

    @torch.inference_mode()
    def propose(self, context: Context, k: int) -> list[Draft]:
        """``k`` tokens per request."""
        cache = context.cache
        lengths = cache.lengths.clone()
        tokens = torch.tensor([tokens[-1] for tokens in context.tokens])
        drafts = []
        for _ in range(k):
            out = self.step(context, chain(tokens[:, None], cache.lengths))
            assert out.choices is not None
            tokens = out.choices[:, 0].cpu()
            drafts.append(tokens)
            cache.commit(1)
        cache.lengths.copy_(lengths)
        return [Draft(tuple(tokens)) for tokens in torch.stack(drafts, dim=1).tolist()]
