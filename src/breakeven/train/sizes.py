"""How many parameters are trained, of how many."""

from __future__ import annotations

import math
from dataclasses import dataclass

from breakeven.verifier.architecture import Architecture
from breakeven.verifier.decoder import tensor_sizes


@dataclass(frozen=True, slots=True)
class Sizes:
    """Trainable parameters and all of them, the frozen verifier's included.

    >>> print(Sizes(trainable=17_831_168, total=613_881_088))
    trainable 17,831,168 of 613,881,088 parameters (2.905 %)
    """

    trainable: int
    total: int

    def __str__(self) -> str:
        share = 100 * self.trainable / self.total
        return f"trainable {self.trainable:,} of {self.total:,} parameters ({share:.3f} %)"


def verifier_parameters(architecture: Architecture) -> int:
    """Parameters of the verifier, a tied head counted once."""
    return sum(math.prod(size) for size in tensor_sizes(architecture).values())


def sizes(trainable: int, architecture: Architecture) -> Sizes:
    """Both counts together."""
    return Sizes(trainable, trainable + verifier_parameters(architecture))
