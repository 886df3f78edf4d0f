"""What a batch of teacher-forced drafts was worth: accuracy and simulated acceptance.

The training texts are the verifier's own greedy continuations, so a label *is* the verifier's
choice, and the leading correct drafts of a block are exactly those a round would accept there.
The simulated acceptance differs from the real one only in where rounds start. Definitions of all
metrics: ``docs/training.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """Counts per guessed position 1..K, summed over blocks; scores of batches add up.

    ``free`` is the number of drafts per block that are not guesses (0 or 1). ``targets`` counts
    all tokens the blocks cover, also those that were shown and hence not guessed; None: all were
    guessed.

    >>> import torch
    >>> right = torch.tensor([[True, True], [True, False], [False, True]])
    >>> score = Score.of(right, valid=torch.ones(3, 2, dtype=torch.bool), targets=8)
    >>> score.survival, score.acceptance_length, score.prefix_length
    ([0.6666666666666666, 0.3333333333333333], 2.0, 1.0)
    >>> score.accuracy, score.target_accuracy
    (0.6666666666666666, 0.5)
    """

    correct: Tensor  # [K] long: right predictions
    survived: Tensor  # [K] long: blocks right at this position and at all before with a label
    counted: Tensor  # [K] long: blocks with a label at this position
    free: int = 0
    targets: int | None = None

    @classmethod
    def of(
        cls, right: Tensor, valid: Tensor, free: int = 0, *, targets: int | None = None
    ) -> Score:
        """From ``[N, K]`` bools: which predictions were right, and which have a label."""
        survived = (right | ~valid).long().cumprod(dim=1) * valid
        right = right & valid
        return cls(right.sum(0).cpu(), survived.sum(0).cpu(), valid.sum(0).cpu(), free, targets)

    def __add__(self, other: Score) -> Score:
        shown = self.targets is not None or other.targets is not None
        return Score(
            self.correct + other.correct,
            self.survived + other.survived,
            self.counted + other.counted,
            self.free,
            self.all_targets + other.all_targets if shown else None,
        )

    @property
    def labels(self) -> int:
        """Number of guesses that were scored."""
        return int(self.counted.sum())

    @property
    def all_targets(self) -> int:
        """Tokens the blocks cover, guessed or shown."""
        return self.labels if self.targets is None else self.targets

    @property
    def accuracy(self) -> float:
        """Right predictions over all labels (masked-token accuracy), in 0-1."""
        return float(self.correct.sum()) / max(1, self.labels)

    @property
    def target_accuracy(self) -> float:
        """Right predictions over all target tokens, those shown counted as not predicted."""
        return float(self.correct.sum()) / max(1, self.all_targets)

    @property
    def accuracies(self) -> list[float]:
        """Accuracy at each guessed position."""
        return _shares(self.correct, self.counted)

    @property
    def survival(self) -> list[float]:
        """s_1 .. s_K of the guesses: the share of blocks whose first k guesses are all right."""
        return _shares(self.survived, self.counted)

    @property
    def prefix_length(self) -> float:
        """Mean number of leading right guesses per block (greedy prefix length)."""
        return sum(self.survival)

    @property
    def acceptance_length(self) -> float:
        """Simulated AL, tokens per round: the bonus, the free draft, and the surviving guesses."""
        return 1.0 + self.free + self.prefix_length


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over batches and processes: a score, and the loss with the weight it stands on.

    >>> import torch
    >>> score = Score.of(torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool))
    >>> (Tally(score, 1.0, weight=3.0) + Tally(score, 5.0, weight=1.0)).loss
    2.0
    """

    score: Score
    loss: float  # mean over the labels, each with its weight
    weight: float  # sum of those weights

    def __add__(self, other: Tally) -> Tally:
        weight = self.weight + other.weight
        total = self.loss * self.weight + other.loss * other.weight
        return Tally(self.score + other.score, total / weight if weight else 0.0, weight)


def _shares(part: Tensor, whole: Tensor) -> list[float]:
    return [p / max(1, w) for p, w in zip(part.tolist(), whole.tolist(), strict=True)]
