"""The acceptance a calibration is tried with: typed, or from a measured profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from breakeven.cost.breakeven import survival_of
from breakeven.cost.profile import PROFILE_FILE, checked_rates, read_rates
from breakeven.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Conditional acceptance by position; beyond the last it goes on. ``source`` says whence.

    >>> Acceptance((0.8, 0.5)).survival(3)
    (0.8, 0.4, 0.2)
    >>> Acceptance((0.8, 0.5)).survival(3, free=1)
    (1.0, 0.8, 0.4)
    """

    rates: tuple[float, ...]
    source: str = "as typed"

    def conditional(self, k: int, free: int = 0) -> tuple[float, ...]:
        """The rates of k drafts; a free first token is always right and uses up none."""
        own = [self.rates[min(i, len(self.rates) - 1)] for i in range(k - free)]
        return (*(1.0 for _ in range(free)), *own)

    def survival(self, k: int, free: int = 0) -> tuple[float, ...]:
        """``s_1 … s_k``."""
        return survival_of(self.conditional(k, free))


def read_acceptance(text: str) -> Acceptance:
    """``0.8,0.6,0.5`` (conditional rates), or a ``speculation_profile.json`` or its folder.

    >>> read_acceptance("0.8,0.6").rates
    (0.8, 0.6)
    """
    path = Path(text)
    if text and path.is_dir():
        path /= PROFILE_FILE
    if path.suffix == ".json":
        return Acceptance(read_rates(path), str(path))
    try:
        rates = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise RecipeError(
            f"--acceptance '{text}': conditional rates such as 0.8,0.6,0.5, or the path of a"
            " speculation_profile.json"
        ) from None
    return Acceptance(checked_rates(rates, "--acceptance"))
