"""The round of :mod:`~breakeven.decode.round` with one wait for the device.

Drafted ids stay on the device, the verify pass takes them from there, and acceptance is a
comparison and a running product. What was drafted and what became of it comes to the host in one
transfer. Only lengths are needed to launch a pass, and these the host knows from the last round.
Trees and drafts with confidences to be trimmed are the host's business and take the other round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from breakeven.core import Draft, Phase, Verified
from breakeven.decode.policy.base import Policy
from breakeven.decode.round import (
    Outlook,
    conclude,
    inside,
    look_ahead,
    padded,
    propose,
    verify,
    verify_pass,
)
from breakeven.drafters.base import Context, Drafter, Sketch
from breakeven.verifier.rows import chain
from breakeven.verifier.transfer import sent


def resident_round(
    context: Context,
    drafter: Drafter,
    policy: Policy,
    requests: Sequence[str],
    room: Sequence[int],
) -> tuple[Outlook, list[Verified]]:
    """What :func:`~breakeven.decode.round.speculative_round` does, and with the same outcome."""
    outlook = look_ahead(context, drafter, policy, requests, room)
    sketch = None
    if outlook.k and outlook.seen is None:
        sketch = drafter.sketch(context, outlook.k)
    if sketch is None:
        drafts = propose(context, drafter, policy, outlook, room)
        if any(d.parents is not None for d in drafts):
            verified, hidden = verify(context, drafts, outlook.phase, drafter)
            conclude(context, drafter, verified, hidden)
            return outlook, verified
        sketch = sketched(drafts, context.verifier.device)
    counts = [
        min(count, max(sketch.free, r - 1)) for count, r in zip(sketch.counts, room, strict=True)
    ]
    short = replace(sketch, ids=sketch.ids[:, : max(counts)], counts=counts)
    rider = drafter if outlook.choice.k else None
    verified, hidden = judge(context, short, outlook.phase, rider)
    conclude(context, drafter, verified, hidden)
    return outlook, verified


def sketched(drafts: Sequence[Draft], device: torch.device) -> Sketch:
    """Chains that the host drafted, sent to the device."""
    ids = padded([d.tokens for d in drafts]).long()
    sure = [d.confidences for d in drafts]
    return Sketch(sent(ids, device), [len(d.tokens) for d in drafts], drafts[0].free, sure)


@torch.inference_mode()
def judge(
    context: Context, sketch: Sketch, phase: Phase, drafter: Drafter | None
) -> tuple[list[Verified], Tensor]:
    """Verify and commit, as :func:`~breakeven.decode.round.verify` does for chains."""
    ids, free, device = sketch.ids, sketch.free, context.verifier.device
    rows = ids
    if free:
        context.cache.commit(1)
    else:
        roots = torch.tensor([tokens[-1:] for tokens in context.tokens])
        rows = torch.cat((sent(roots, device), ids), dim=1)
    layout = inside(context, chain(rows, context.cache.lengths))
    judged = verify_pass(context, layout, phase, drafter, wait=False)
    accepted, token = agreement(ids, judged.choices, sketch.counts, free)
    if drafter and judged.aboard is not None:
        drafter.land(judged.aboard, accepted, token[:, 0])
    found = torch.cat((ids, accepted[:, None], token), dim=1).tolist()  # the one wait
    context.ledger.settle()
    known = sketch.confidences or [()] * len(found)
    verified = [
        Verified(Draft(tuple(line[:count]), free, None, sure[:count]), line[-2], line[-1])
        for line, count, sure in zip(found, sketch.counts, known, strict=True)
    ]
    context.cache.commit([v.committed - free for v in verified])
    return verified, judged.hidden


def agreement(
    ids: Tensor, choices: Tensor, counts: Sequence[int], free: int
) -> tuple[Tensor, Tensor]:
    """Greedy chain acceptance on the device: accepted drafts ``[B]`` and the next ids ``[B, 1]``.

    ``ids`` are ``[B, K]`` of which ``counts[b]`` are drafts, ``choices`` ``[B, W]`` as in
    :func:`~breakeven.decode.round.accept`.

    >>> agreement(torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6, 9, 9]]), [3], 0)
    (tensor([2]), tensor([[9]]))
    """
    same = ids[:, free:] == choices[:, : ids.shape[1] - free]
    if min(counts) < ids.shape[1]:
        drafted = torch.arange(free, ids.shape[1]) < torch.tensor(counts)[:, None]
        same = same & sent(drafted, ids.device)
    agreed = same.long().cumprod(dim=1).sum(dim=1)
    return agreed + free, choices.gather(1, agreed[:, None])
