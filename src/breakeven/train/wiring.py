"""Teacher-forced against deployed survival: a large gap is a fault in the wiring.

The leading right guesses per round are predicted twice: at every scored place of the validation
texts (simulated) and in decoding the same prompts (real). Where a drafter sees the same in both,
the real number is somewhat lower: after a hard token a new round starts, so hard places are over-
represented. A real number far below that means that training and decoding do not feed the drafter
the same thing (dflash#41: training accuracy 0.99, acceptance 0.12).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from breakeven.train.acceptance import Acceptance
from breakeven.train.score import Score

TOLERANCE = 0.35
"""How much lower than the simulated the real prefix length may be, as a share of it."""

ERRORS = 2.0
"""Standard errors of statistical noise granted on top."""

CHECKS = (
    "compare the drafter's logits in training and decoding on one text: positions, the token each "
    "row reads, which hidden state or cache it sees, and the draft vocabulary"
)


@dataclass(frozen=True, slots=True)
class Wiring:
    """Leading right guesses per round, simulated and real, and the least that is plausible.

    ``least`` is ``(1 - TOLERANCE) simulated - ERRORS standard errors``, or 0, the errors of both
    taken over texts, since guesses within a text are alike.
    """

    simulated: float
    real: float
    least: float

    @classmethod
    def of(cls, scores: Sequence[Score], acceptance: Acceptance) -> Self:
        """From the scores of single texts and the decoding of the same prompts."""
        blocks = [(int(s.survived.sum()), int(s.counted[:1].sum())) for s in scores]
        rounds = [(guesses, number) for _, number, guesses in acceptance.texts]
        simulated, simulated_error = ratio(blocks)
        real, real_error = ratio(rounds)
        part = 1.0 - TOLERANCE
        noise = math.hypot(part * simulated_error, real_error)
        return cls(simulated, real, max(0.0, part * simulated - ERRORS * noise))

    @property
    def fault(self) -> bool:
        """Whether the gap is larger than tolerance and noise explain."""
        return self.real < self.least

    def __str__(self) -> str:
        seen = (
            f"deployed drafts survive for {self.real:.2f} guesses per round, teacher-forced ones "
            f"for {self.simulated:.2f}"
        )
        if not self.fault:
            return f"{seen}: within what is expected (at least {self.least:.2f})"
        return f"{seen}, at least {self.least:.2f} expected: a wiring fault; {CHECKS}"


def ratio(parts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """``sum(a) / sum(b)`` over texts and its standard error (infinite for a single text).

    >>> ratio([(2, 2), (4, 2)])
    (1.5, 0.5)
    """
    whole = sum(b for _, b in parts)
    if not whole:
        return 0.0, math.inf
    value = sum(a for a, _ in parts) / whole
    if len(parts) < 2:
        return value, math.inf
    squares = sum((a - value * b) ** 2 for a, b in parts)
    return value, math.sqrt(squares * len(parts) / (len(parts) - 1)) / whole
