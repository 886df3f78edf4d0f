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
from breakeven.progress import Meter
from breakeven.train.recipe import EvaluateSettings
from breakeven.verifier.interface import Verifier


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What decoding gave. Acceptances of different prompts add up.

    >>> one = Acceptance(tried=(2, 1), survived=(1, 0), texts=((3, 2, 1),))
    >>> (one + one).length, (one + one).survival, (one + one).rounds
    (1.5, (0.5, 0.0), 4)
    """

    tried: tuple[int, ...]  # [K] rounds with at least k drafts
    survived: tuple[int, ...]  # [K] of these, rounds whose first k drafts were all accepted
    texts: tuple[tuple[int, int, int], ...]  # per prompt: tokens committed, rounds, right guesses

    def __add__(self, other: Acceptance) -> Acceptance:
        def added(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(x + y for x, y in zip(a, b, strict=True))

        return Acceptance(
            added(self.tried, other.tried),
            added(self.survived, other.survived),
            self.texts + other.texts,
        )

    @property
    def prompts(self) -> int:
        """Prompts decoded."""
        return len(self.texts)

    @property
    def rounds(self) -> int:
        """Rounds (verify passes per request) of all prompts."""
        return sum(rounds for _, rounds, _ in self.texts)

    @property
    def length(self) -> float:
        """AL: tokens committed / verify passes, bonus included, after truncation."""
        return sum(committed for committed, *_ in self.texts) / max(1, self.rounds)

    @property
    def survival(self) -> tuple[float, ...]:
        """s_1 .. s_K, before truncation; a free first token counts as accepted."""
        return tuple(s / max(1, t) for s, t in zip(self.survived, self.tried, strict=True))


def real_acceptance(
    verifier: Verifier,
    drafter: Drafter,
    rows: Sequence[Row],
    settings: EvaluateSettings,
    *,
    k: int,
    eos: Collection[int],
    bar: Meter | None = None,
) -> Acceptance:
    """Decode the prompts of ``rows`` greedily with ``k`` drafts a round; ``bar`` counts them."""
    requests = [
        Request(row.id, tuple(row.prompt_ids), settings.max_new_tokens, frozenset(eos))
        for row in rows
    ]
    ledger = Ledger()
    for _ in generate(
        verifier, requests, drafter=drafter, k=k, batch=settings.batch, ledger=ledger
    ):
        if bar is not None:
            bar.advance()
    return summarize(ledger, k, [row.id for row in rows])


def summarize(ledger: Ledger, k: int, prompts: Sequence[str]) -> Acceptance:
    """Acceptance of the rounds in a ledger; ``prompts`` are the requests' ids."""
    tried, survived = [0] * k, [0] * k
    texts = {prompt: [0, 0, 0] for prompt in prompts}
    for one in ledger.rounds:
        for position in range(k):
            tried[position] += one.drafted > position
            survived[position] += one.accepted > position
        text = texts[one.request]
        text[0] += one.committed
        text[1] += 1
        text[2] += max(0, one.accepted - one.free)
    return Acceptance(tuple(tried), tuple(survived), tuple((c, n, g) for c, n, g in texts.values()))
