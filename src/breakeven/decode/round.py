"""One round of speculative decoding: draft → verify → accept → commit.

This is the algorithm; everything else supports it. State between rounds (ALGORITHMS 0.3): the
cache holds the verifier's rows of ``x_1 .. x_{t-1}`` and the root ``x_t`` is pending. The verify
pass feeds the root and the drafts as consecutive rows; row j says what follows it. Greedy
acceptance keeps the longest prefix of drafts that equals the verifier's own choices, then adds
the verifier's next token: the output is the verifier's, whatever was drafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from breakeven.core import Draft, Phase, Verified
from breakeven.drafters.base import Context, Drafter
from breakeven.verifier.rows import Rows, chain


def speculative_round(
    context: Context, drafter: Drafter, k: int, room: Sequence[int]
) -> list[Verified]:
    """Draft at most ``k`` tokens per request, verify them, commit what the verifier agrees with.

    ``room[b]`` (≥ 1) is how many more tokens request b may get; drafts are shortened to it.
    Afterwards ``context.tokens`` and ``context.cache`` have grown by the committed tokens.
    """
    k = min(k, max(room) - 1)
    drafts = drafter.propose(context, k) if k else [Draft(())] * context.batch
    drafts = [d.clipped(max(d.free, r - 1)) for d, r in zip(drafts, room, strict=True)]
    verified, hidden = verify(context, drafts)
    for tokens, outcome in zip(context.tokens, verified, strict=True):
        tokens.extend(outcome.tokens)
    drafter.observe(context, verified, hidden)
    return verified


def verify(context: Context, drafts: Sequence[Draft]) -> tuple[list[Verified], Tensor]:
    """One verifier pass over all drafts; commits the key/value rows of what was accepted.

    Returns the outcomes and the hidden states ``[B, W, H]`` of the pass. With a free first token
    the root's row is in place already, so the pass starts at that token.
    """
    free = drafts[0].free
    assert all(d.free == free for d in drafts), "a free first token is all requests' or none's"
    if free:
        context.cache.commit(1)
        rows = [d.tokens for d in drafts]
    else:
        rows = [(tokens[-1], *d.tokens) for tokens, d in zip(context.tokens, drafts, strict=True)]
    out = context.verifier.run(
        Phase.VERIFY, padded_chain(context, rows), context.cache, context.ledger, logits="choices"
    )
    assert out.choices is not None
    choices = out.choices.tolist()  # [B][W]
    verified = [accept(d, choice) for d, choice in zip(drafts, choices, strict=True)]
    context.cache.commit([v.committed - free for v in verified])
    return verified, out.hidden


def accept(draft: Draft, choices: Sequence[int]) -> Verified:
    """Greedy chain acceptance: the longest prefix of drafts equal to the verifier's choices.

    ``choices[j]`` is the verifier's token after row j of the pass; without a free first token
    row 0 is the root, with one it is that token.

    >>> accept(Draft((5, 6, 7)), [5, 6, 9, 9]).tokens
    (5, 6, 9)
    >>> accept(Draft((5, 6, 7), free=1), [6, 7, 8]).tokens
    (5, 6, 7, 8)
    """
    accepted = draft.free
    while accepted < len(draft.tokens) and (
        draft.tokens[accepted] == choices[accepted - draft.free]
    ):
        accepted += 1
    return Verified(draft, accepted, choices[accepted - draft.free])


def padded_chain(context: Context, rows: Sequence[Sequence[int]]) -> Rows:
    """Rows of unequal length as one ``[B, W]`` chain; the padding is never committed."""
    width = max(map(len, rows))
    ids = torch.tensor([[*r, *[0] * (width - len(r))] for r in rows])
    layout = chain(ids, context.cache.lengths)
    last = context.verifier.shape.max_positions - 1
    return replace(layout, positions=layout.positions.clamp(max=last))
