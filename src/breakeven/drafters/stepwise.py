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
    sharpness: float = 1.0
    """Log-odds that a token is the verifier's, for each unit by which its logit is the largest."""

    @abstractmethod
    def step(self, context: Context, rows: Rows) -> Output:
        """A draft pass over one row of each request, for the row's arg-max and its margin."""

    @torch.inference_mode()
    def propose(self, context: Context, k: int) -> list[Draft]:
        """``k`` tokens per request, or as many as are enough.

        A confidence is the token's odds against its runner-up, sharpened.
        """
        cache = context.cache
        lengths = cache.lengths.clone()
        roots = torch.tensor([tokens[-1] for tokens in context.tokens])
        drafts: list[list[int]] = [[] for _ in context.tokens]
        sure: list[list[float]] = [[] for _ in context.tokens]
        while len(drafts[0]) < k and not (drafts[0] and context.done(drafts, sure)):
            out = self.step(context, chain(roots[:, None], cache.lengths))
            assert out.choices is not None and out.margins is not None
            roots, shares = out.choices[:, 0].cpu(), (self.sharpness * out.margins[:, 0]).sigmoid()
            for own, token, known, share in zip(
                drafts, roots.tolist(), sure, shares.tolist(), strict=True
            ):
                own.append(token)
                known.append(share)
            cache.commit(1)
        cache.lengths.copy_(lengths)
        return [
            Draft(tuple(own), confidences=tuple(known))
            for own, known in zip(drafts, sure, strict=True)
        ]
