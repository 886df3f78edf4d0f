"""Real acceptance: decoding validation prompts with the drafter being trained.

Teacher-forced accuracy can look good while a drafter is useless, when training and decoding do
not see the same thing; decoding is the only number that counts, and the best checkpoint is
chosen by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.train.recipe import EvaluateSettings
from breakeven.verifier.interface import Verifier


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What decoding gave.

    ``length`` is AL: tokens committed / verify passes, bonus included, after truncation.
    ``survival[k-1]`` is the share of rounds with at least k drafts whose first k drafts were all
    accepted, before truncation; a free first token counts as accepted.
    """

    length: float
    survival: tuple[float, ...]
    rounds: int
    prompts: int


def real_acceptance(
    verifier: Verifier,
    drafter: Drafter,
    rows: Sequence[Row],
    settings: EvaluateSettings,
    *,
    k: int,
    eos: Collection[int],
) -> Acceptance:
    """Decode the prompts of ``rows`` greedily with ``k`` drafts a round."""
    requests = [
        Request(row.id, tuple(row.prompt_ids), settings.max_new_tokens, frozenset(eos))
        for row in rows
    ]
    ledger = Ledger()
    for _ in generate(
        verifier, requests, drafter=drafter, k=k, batch=settings.batch, ledger=ledger
    ):
        pass
    return summarize(ledger, k, len(rows))


def summarize(ledger: Ledger, k: int, prompts: int) -> Acceptance:
    """Acceptance of the rounds in a ledger."""
    rounds = ledger.rounds
    survival = []
    for position in range(1, k + 1):
        tried = [r.accepted >= position for r in rounds if r.drafted >= position]
        survival.append(sum(tried) / max(1, len(tried)))
    return Acceptance(
        length=ledger.committed / max(1, len(rounds)),
        survival=tuple(survival),
        rounds=len(rounds),
        prompts=prompts,
    )
