"""Teacher-forced re-scoring: what one plain pass says about every token of an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain


@dataclass(frozen=True, slots=True)
class Scores:
    """One entry per token of an output of n tokens; logits, not probabilities."""

    best: tuple[int, ...]
    """The verifier's own choice (lowest id among equals)."""
    top: tuple[float, ...]
    """Its logit."""
    margin: tuple[float, ...]
    """How far the second best lies below it."""
    gap: tuple[float, ...]
    """How far the emitted token lies below it; 0 where it is the best."""


@torch.inference_mode()
def rescore(verifier: Verifier, prompt: Sequence[int], tokens: Sequence[int]) -> Scores:
    """Score ``tokens`` (at least one) after ``prompt`` with one pass over both.

    Half-precision logits are compared in fp32, as the decoder compares them.
    """
    sequence = torch.tensor([[*prompt, *tokens[:-1]]])
    cache = verifier.new_cache(1, sequence.shape[1])
    rows = chain(sequence, cache.lengths)
    out = verifier.run(Phase.PREFILL, rows, cache, Ledger(), logits="none")
    logits = verifier.head(out.hidden[:, len(prompt) - 1 :])[0]  # [n, V]
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    best_two = logits.topk(min(2, logits.shape[-1])).values  # [n, 2]
    emitted = torch.tensor(tokens, device=logits.device)[:, None]
    top = best_two[:, 0]
    return Scores(
        best=tuple(logits.argmax(-1).tolist()),
        top=tuple(top.tolist()),
        margin=tuple((top - best_two[:, -1]).tolist()),
        gap=tuple((top - logits.gather(1, emitted)[:, 0]).tolist()),
    )


class Rescorer:
    """Re-scores each output once, however many configurations gave it."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Scores] = {}

    def __call__(self, prompt: Sequence[int], tokens: Sequence[int]) -> Scores:
        """The scores of ``tokens`` after ``prompt``."""
        key = (tuple(prompt), tuple(tokens))
        if key not in self._known:
            self._known[key] = rescore(self.verifier, *key)
        return self._known[key]
