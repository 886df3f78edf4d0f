"""Teacher-forced against deployed acceptance: they must agree, or the wiring is wrong.

Guesses are easier to get right at a place drawn at random than where rounds begin: an easy
stretch is one long round, a hard one many short rounds. So the mean over places says little about
decoding. But the validation texts are the verifier's own answers, and decoding repeats them token
by token. Teacher-forced guesses at every place therefore tell exactly which rounds decoding will
have: start at the first token, go on behind what would be accepted, count the steps. More rounds
than that mean that the drafter was trained on something else than it is shown (dflash#41:
training accuracy 0.99, acceptance 0.12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from breakeven.counting import counted
from breakeven.train.acceptance import Acceptance

TOLERANCE = 0.05
"""Share of additional rounds that rounding may cause: training may run in half precision."""

SLACK = 2
"""Rounds granted on top, since in a few short texts one guess is a large share."""

CHECKS = (
    "compare the drafter's logits in training and decoding on one text: positions, the token each "
    "row reads, which hidden state or cache it sees, and the draft vocabulary"
)


def walk(leading: Sequence[int], tokens: int, *, free: int, k: int) -> tuple[int, int]:
    """Committed tokens and rounds of decoding an answer of so many ``tokens``.

    ``leading[i]`` right guesses follow the answer's token i when it is the root. A round drafts
    at most ``k`` tokens, ``free`` of them the verifier's own, and no more than there is room for;
    the first token comes from the prompt's pass.

    >>> walk([2, 0, 0, 1, 0], tokens=6, free=0, k=2)  # roots 0, 3 and 5: 3 + 2 tokens
    (5, 2)
    >>> walk([0, 0, 0], tokens=5, free=1, k=3)  # two tokens a round, whatever is guessed
    (4, 2)
    """
    at, rounds = 0, 0
    while at < tokens - 1:
        room = tokens - 1 - at
        drafted = min(k, max(free, room - 1)) if room > 1 else 0
        right = leading[at] if at < len(leading) else 0
        accepted = min(drafted, free + right) if drafted else 0
        at += min(room, accepted + 1)
        rounds += 1
    return max(0, tokens - 1), rounds


@dataclass(frozen=True, slots=True)
class Wiring:
    """Rounds for ``tokens`` committed tokens, as teacher forcing foretold and as decoded."""

    tokens: int
    foretold: int
    decoded: int

    @classmethod
    def of(cls, walks: Sequence[tuple[int, int]], acceptance: Acceptance) -> Self:
        """From :func:`walk` of each text and the decoding of the same prompts."""
        tokens = sum(committed for committed, _ in walks)
        return cls(tokens, sum(rounds for _, rounds in walks), acceptance.rounds)

    @property
    def length(self) -> float:
        """The foretold acceptance length."""
        return self.tokens / max(1, self.foretold)

    @property
    def fault(self) -> bool:
        """Whether decoding took more rounds than rounding explains."""
        return self.decoded > (1 + TOLERANCE) * self.foretold + SLACK

    def __str__(self) -> str:
        seen = (
            f"decoding took {counted(self.decoded, 'round')}, teacher-forced guesses foretold "
            f"{self.foretold} "
            f"(AL {self.length:.3f})"
        )
        return f"{seen}: a wiring fault; {CHECKS}" if self.fault else f"{seen}: as it should be"
