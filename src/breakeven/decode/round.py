"""One round of speculative decoding: draft → verify → accept → commit.

This is the algorithm; everything else supports it. State between rounds (ALGORITHMS 0.3): the
cache holds the verifier's rows of ``x_1 .. x_{t-1}`` and the root ``x_t`` is pending. The verify
pass feeds the root and the drafts as consecutive rows; row j says what follows it. Greedy
acceptance keeps the longest prefix of drafts that equals the verifier's own choices, then adds
the verifier's next token: the output is the verifier's, whatever was drafted and how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from breakeven.core import Choice, Draft, Phase, Verified
from breakeven.decode.policy.base import Policy, Prospect
from breakeven.drafters.base import Aboard, Boarding, Context, Drafter
from breakeven.verifier.rows import Rows, chain, tree


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the policy knew before a round, and what it chose (see :class:`Choice`)."""

    prospects: Sequence[Prospect]
    choice: Choice
    k: int  # the choice, within the requests' room
    seen: Sequence[Draft] | None  # drafts that took no pass

    @property
    def phase(self) -> Phase:
        """What the verify pass is bought for."""
        return Phase.VERIFY if self.choice.k else Phase.PLAIN


def speculative_round(
    context: Context,
    drafter: Drafter,
    policy: Policy,
    requests: Sequence[str],
    room: Sequence[int],
) -> tuple[Outlook, list[Verified]]:
    """Draft as far as ``policy`` lets, verify, commit what the verifier agrees with.

    ``requests[b]`` names request b and ``room[b]`` (≥ 1) is how many more tokens it may get;
    drafts are shortened to it. Afterwards ``context.tokens`` and ``context.cache`` have grown by
    the committed tokens.
    """
    outlook = look_ahead(context, drafter, policy, requests, room)
    drafts = propose(context, drafter, policy, outlook, room)
    # nothing of the drafter's rides in a plain step
    rider = drafter if outlook.choice.k else None
    verified, hidden = verify(context, drafts, outlook.phase, rider)
    conclude(context, drafter, verified, hidden)
    return outlook, verified


def conclude(
    context: Context, drafter: Drafter, verified: Sequence[Verified], hidden: Tensor
) -> None:
    """The end of a round: tokens are committed, and the drafter learns of it."""
    for tokens, outcome in zip(context.tokens, verified, strict=True):
        tokens.extend(outcome.tokens)
    drafter.observe(context, verified, hidden)


def look_ahead(
    context: Context,
    drafter: Drafter,
    policy: Policy,
    requests: Sequence[str],
    room: Sequence[int],
) -> Outlook:
    """How much to draft. Drafts that take no pass are looked at before the policy chooses."""
    most = max(room) - 1
    seen = drafter.glimpse(context, min(policy.longest, most))
    if seen is None:
        prospects = [Prospect(name) for name in requests]
    else:
        prospects = [
            Prospect(name, d.match, len(d.tokens)) for name, d in zip(requests, seen, strict=True)
        ]
    choice = policy.choose(prospects, int(context.cache.lengths.max()))
    return Outlook(prospects, choice, min(choice.k, most), seen)


def propose(
    context: Context, drafter: Drafter, policy: Policy, outlook: Outlook, room: Sequence[int]
) -> list[Draft]:
    """The drafts of a round, as long as the policy and the requests' room let them be."""
    if outlook.k == 0:
        return [Draft(())] * context.batch
    seen, k = outlook.seen, outlook.k
    context.enough = policy.enough
    drafts = [d.clipped(k) for d in seen] if seen else drafter.propose(context, k)
    drafts = [policy.trim(d.until(context.ends_of(slot))) for slot, d in enumerate(drafts)]
    return [d.clipped(max(d.free, r - 1)) for d, r in zip(drafts, room, strict=True)]


def verify(
    context: Context,
    drafts: Sequence[Draft],
    phase: Phase = Phase.VERIFY,
    drafter: Drafter | None = None,
) -> tuple[list[Verified], Tensor]:
    """One verifier pass over all drafts; commits the key/value rows of what was accepted.

    Returns the outcomes and the hidden states ``[B, W, H]`` of the pass, in a tree those of the
    accepted path first. With a free first token the root's row is in place already, so the pass
    starts at that token. A chain's ``drafter`` may add rows of its own behind it.
    """
    free = drafts[0].free
    assert all(d.free == free for d in drafts), "a free first token is all requests' or none's"
    if free:
        context.cache.commit(1)
        rows = [d.tokens for d in drafts]
    else:
        rows = [(tokens[-1], *d.tokens) for tokens, d in zip(context.tokens, drafts, strict=True)]
    branched = any(d.parents is not None for d in drafts)
    layout = padded_tree(context, rows, drafts) if branched else padded_chain(context, rows)
    judged = verify_pass(context, layout, phase, None if branched else drafter)
    choices = judged.choices.tolist()  # [B][W]
    verified = [accept(d, choice) for d, choice in zip(drafts, choices, strict=True)]
    if not branched:
        context.cache.commit([v.committed - free for v in verified])
        if drafter and judged.aboard is not None:
            found = torch.tensor([(v.accepted, v.token) for v in verified])
            accepted, tokens = found.to(judged.choices.device).unbind(dim=1)
            drafter.land(judged.aboard, accepted, tokens)
        return verified, judged.hidden
    paths = [kept_rows(v) for v in verified]
    context.cache.keep(paths)
    return verified, gathered(judged.hidden, paths)


@dataclass(frozen=True, slots=True)
class Judged:
    """A verify pass of W rows: arg-max ids ``[B, W]`` and states ``[B, W, H]``.

    ``aboard`` are the drafter's own rows behind them, if any rode along.
    """

    choices: Tensor
    hidden: Tensor
    aboard: Aboard | None


def verify_pass(
    context: Context, layout: Rows, phase: Phase, drafter: Drafter | None, *, wait: bool = True
) -> Judged:
    """Run the rows of ``layout``, and those that ``drafter`` lets ride behind them.

    Without ``wait`` a device may still be at work when this returns.
    """
    boarding = drafter.board(context, layout) if drafter else Boarding(layout)
    out = context.verifier.run(
        phase,
        boarding.rows,
        context.cache,
        context.ledger,
        adapter=boarding.adapter,
        part=boarding.part,
        logits="choices",
        wait=wait,
    )
    assert out.choices is not None
    width = layout.width
    aboard = None
    if boarding.rows.width > width:
        aboard = Aboard(out.choices[:, width:], out.hidden[:, width:])
    return Judged(out.choices[:, :width], out.hidden[:, :width], aboard)


def accept(draft: Draft, choices: Sequence[int]) -> Verified:
    """Greedy chain acceptance: the longest prefix of drafts equal to the verifier's choices.

    ``choices[j]`` is the verifier's token after row j of the pass; without a free first token
    row 0 is the root, with one it is that token.

    >>> accept(Draft((5, 6, 7)), [5, 6, 9, 9]).tokens
    (5, 6, 9)
    >>> accept(Draft((5, 6, 7), free=1), [6, 7, 8]).tokens
    (5, 6, 7, 8)
    """
    if draft.parents is not None:
        return accept_tree(draft, choices)
    accepted = draft.free
    while accepted < len(draft.tokens) and (
        draft.tokens[accepted] == choices[accepted - draft.free]
    ):
        accepted += 1
    return Verified(draft, accepted, choices[accepted - draft.free])


def accept_tree(draft: Draft, choices: Sequence[int]) -> Verified:
    """Greedy tree acceptance: from the root down, always to the child that the verifier chose.

    >>> accept_tree(Draft((5, 6, 7), parents=(-1, -1, 1)), [6, 0, 7, 8]).tokens
    (6, 7, 8)
    """
    assert draft.parents is not None
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True))
    }
    path = list(range(draft.free))
    node = path[-1] if path else -1
    while True:
        token = choices[node + 1 - draft.free]
        child = children.get((node, token))
        if child is None:
            return Verified(draft, len(path), token, tuple(path))
        path.append(child)
        node = child


def kept_rows(verified: Verified) -> list[int]:
    """The rows of the verify pass whose keys and values are kept, in order."""
    draft = verified.draft
    path = range(verified.accepted) if verified.path is None else verified.path
    return [*range(1 - draft.free), *(node + 1 - draft.free for node in path)]


def gathered(hidden: Tensor, paths: Sequence[Sequence[int]]) -> Tensor:
    """``[B, W, H]`` with the rows of each path in front, in order; the rest is left as it was."""
    moved = hidden.clone()
    for request, path in enumerate(paths):
        moved[request, : len(path)] = hidden[request, list(path)]
    return moved


def padded_tree(context: Context, rows: Sequence[Sequence[int]], drafts: Sequence[Draft]) -> Rows:
    """Token trees (or chains beside trees) of unequal size as one ``[B, W]`` layout."""
    parents = []
    for draft in drafts:
        family = draft.parents
        if family is None:
            family = tuple(range(-1, len(draft.tokens) - 1))
        offset = 1 - draft.free
        parents.append([*[-1] * offset, *(parent + offset for parent in family)])
    return inside(context, tree(padded(rows), parents, context.cache.lengths))


def padded_chain(context: Context, rows: Sequence[Sequence[int]]) -> Rows:
    """Rows of unequal length as one ``[B, W]`` chain; the padding is never committed."""
    return inside(context, chain(padded(rows), context.cache.lengths))


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Token ids of unequal number as ``[B, W]``, filled up with 0."""
    width = max(map(len, rows))
    return torch.tensor([[*r, *[0] * (width - len(r))] for r in rows])


def inside(context: Context, layout: Rows) -> Rows:
    """The layout with the positions of rows that cannot be committed kept inside the model's."""
    last = context.verifier.shape.max_positions - 1
    return replace(layout, positions=layout.positions.clamp(max=last))
