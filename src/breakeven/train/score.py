"""What a batch of teacher-forced drafts was worth: accuracy and simulated acceptance.

The training texts are the verifier's own greedy continuations, so a label *is* the verifier's
choice, and the leading correct drafts of a block are exactly those a round would accept there.
The simulated acceptance differs from the real one only in where rounds start.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """Counts per guessed position 1..K, summed over blocks; scores of batches add up.

    ``free`` is the number of drafts per block that are not guesses (0 or 1).

    >>> import torch
    >>> right = torch.tensor([[True, True], [True, False], [False, True]])
    >>> score = Score.of(right, valid=torch.ones(3, 2, dtype=torch.bool))
    >>> score.survival, score.acceptance_length, score.accuracy
    ([0.6666666666666666, 0.3333333333333333], 2.0, 0.6666666666666666)
    """

    correct: Tensor  # [K] long: right predictions
    survived: Tensor  # [K] long: blocks right at this position and at all before with a label
    counted: Tensor  # [K] long: blocks with a label at this position
    free: int = 0

    @classmethod
    def of(cls, right: Tensor, valid: Tensor, free: int = 0) -> Score:
        """From ``[N, K]`` bools: which predictions were right, and which have a label."""
        survived = (right | ~valid).long().cumprod(dim=1) * valid
        right = right & valid
        return cls(right.sum(0).cpu(), survived.sum(0).cpu(), valid.sum(0).cpu(), free)

    def __add__(self, other: Score) -> Score:
        return Score(
            self.correct + other.correct,
            self.survived + other.survived,
            self.counted + other.counted,
            self.free,
        )

    @property
    def accuracy(self) -> float:
        """Right predictions over all labels, in 0-1."""
        return float(self.correct.sum()) / max(1, int(self.counted.sum()))

    @property
    def accuracies(self) -> list[float]:
        """Accuracy at each guessed position."""
        return _shares(self.correct, self.counted)

    @property
    def survival(self) -> list[float]:
        """s_1 .. s_K of the guesses: the share of blocks whose first k guesses are all right."""
        return _shares(self.survived, self.counted)

    @property
    def acceptance_length(self) -> float:
        """Simulated AL, tokens per round: the bonus, the free draft, and the surviving guesses."""
        return 1.0 + self.free + sum(self.survival)


def _shares(part: Tensor, whole: Tensor) -> list[float]:
    return [p / max(1, w) for p, w in zip(part.tolist(), whole.tolist(), strict=True)]
