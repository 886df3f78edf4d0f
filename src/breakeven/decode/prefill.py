"""Reading prompts into the cache.

Prompts that enter together need not share a pass. On a CPU a pass of many rows is bound by
arithmetic, so a prompt padded to the length of another costs what the other does; only short ones
gain by company. On a GPU one pass is cheaper than many launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.round import padded_chain
from breakeven.drafters.base import Context
from breakeven.verifier.cache import KVCache
from breakeven.verifier.interface import Verifier

ROWS = 64
"""Most rows, padding included, that prompts share on a CPU."""


def groups(lengths: Sequence[int], rows: int = ROWS) -> Iterator[slice]:
    """Neighbours that together, padded, have at most ``rows`` rows; a longer prompt is alone.

    >>> [(g.start, g.stop) for g in groups([10, 20, 21, 22, 90, 5], rows=64)]
    [(0, 3), (3, 4), (4, 5), (5, 6)]
    """
    start = longest = 0
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if index > start and longest * (index + 1 - start) > rows:
            yield slice(start, index)
            start, longest = index, length
    if lengths:
        yield slice(start, len(lengths))


def prefill(
    verifier: Verifier, window: KVCache, prompts: Sequence[list[int]], ledger: Ledger
) -> tuple[Tensor, list[int]]:
    """Fill the slots of ``window``, one for each prompt.

    Returns the states after the final norm ``[n, P, H]``, right-padded, and the first token of
    each answer.
    """
    window.lengths.zero_()
    whole = [slice(0, len(prompts))]
    cut = groups([len(p) for p in prompts]) if verifier.device.type == "cpu" else whole
    hidden, first = [], []
    for part in cut:
        states, tokens = _read(
            verifier, window.window(part.start, part.stop), prompts[part], ledger
        )
        hidden.append(states)
        first += tokens
    longest = max(states.shape[1] for states in hidden)
    return torch.cat([F.pad(h, (0, 0, 0, longest - h.shape[1])) for h in hidden]), first


def _read(
    verifier: Verifier, window: KVCache, prompts: Sequence[list[int]], ledger: Ledger
) -> tuple[Tensor, list[int]]:
    """One pass."""
    entering = Context(verifier, list(prompts), window, ledger)
    lengths = torch.tensor([len(p) for p in prompts])
    layout = padded_chain(entering, prompts)
    out = verifier.run(Phase.PREFILL, layout, window, ledger, logits=lengths - 1)
    assert out.logits is not None
    window.commit(lengths.tolist())
    tokens: list[int] = out.logits[:, 0].argmax(dim=-1).tolist()
    return out.hidden, tokens
