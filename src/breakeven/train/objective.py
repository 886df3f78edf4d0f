"""What the training loop needs to know of a drafter: a loss, a drafter to decode with, a name.

A new method is one module with a subclass of :class:`Objective` and one row in
:data:`breakeven.train.methods.METHODS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from breakeven.data.artifact import Row
from breakeven.drafters.base import Drafter
from breakeven.train.score import Score, Tally
from breakeven.verifier.interface import Verifier


@dataclass(frozen=True, slots=True)
class Judged:
    """One batch: a differentiable loss and what the predictions were worth.

    ``loss`` is a weighted mean over labels and ``weight`` the sum of those weights (None: 1 for
    each label), so that the batches of a step add up to the loss over all of its labels, however
    the rows are spread over passes and processes.
    """

    loss: Tensor
    score: Score
    weight: float | None = None

    @property
    def labels(self) -> int:
        """Number of scored predictions."""
        return self.score.labels

    @property
    def tally(self) -> Tally:
        """The same without a graph."""
        weight = float(self.labels) if self.weight is None else self.weight
        return Tally(self.score, float(self.loss.detach()), weight)


class Objective(nn.Module, ABC):
    """A drafter being trained. Its parameters are the trainable ones; the verifier is not in it.

    Everything random is drawn from the generator handed in, for each row from its own
    (:func:`~breakeven.train.randomness.own_generator`), so a step is a function of the weights,
    the rows and the step number, however the rows are spread over passes and processes: that is
    what makes a resumed run exact and two processes equal to one.
    """

    name: str
    drafts: int
    """K: tokens per round the trained drafter is meant for."""
    free = 0
    """Drafts per round that are the verifier's own (0 or 1)."""
    noised = False
    """Whether training shows some of the targets; in evaluation mode all are to be guessed."""

    def __init__(self, verifier: Verifier) -> None:
        """``verifier`` runs the frozen passes; where it is of half precision, products with
        trained weights (kept in fp32) are made in half precision, too.
        """
        super().__init__()
        self._device_type = verifier.device.type
        self._half = verifier.dtype if verifier.dtype.itemsize == 2 else None

    def prepare(self, rows: Sequence[Row], corpus: Sequence[Row], *, fresh: bool) -> None:
        """Look at the data once, before the first step.

        ``rows`` are those to train on, ``corpus`` all of the artifact's. ``fresh`` is False when
        weights will be restored from a checkpoint, so a warm start would be wasted.
        """

    @abstractmethod
    def labels(self, row: Row) -> int:
        """How many predictions of this row could be scored; rows with none are left out."""

    def forward(self, rows: Sequence[Row], generator: torch.Generator) -> Judged:
        """The loss over a batch of rows."""
        with torch.autocast(self._device_type, self._half, enabled=self._half is not None):
            return self.judge(rows, generator)

    @abstractmethod
    def judge(self, rows: Sequence[Row], generator: torch.Generator) -> Judged:
        """What :meth:`forward` returns, in whatever precision is set."""

    @torch.no_grad()
    def leading(self, row: Row) -> list[int]:
        """Leading right guesses behind each token of the continuation, teacher-forced.

        Entry i is for token i as the root; roots at the end with nothing to guess are left out.
        """
        with torch.autocast(self._device_type, self._half, enabled=self._half is not None):
            right = self.right(row)  # [R, G]
        counts: list[int] = right.long().cumprod(dim=-1).sum(dim=-1).tolist()
        return counts

    @abstractmethod
    def right(self, row: Row) -> Tensor:
        """``[R, G]`` bool: which guesses behind roots 0..R-1 of the continuation are right."""

    @abstractmethod
    def drafter(self) -> Drafter:
        """A drafter with the weights of this moment, for decoding."""

    @abstractmethod
    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write that drafter, so that its class's ``load`` reads it; weights as ``dtype``."""
