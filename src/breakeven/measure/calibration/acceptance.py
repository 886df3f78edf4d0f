"""The acceptance a calibration is tried with: typed, or from a measured profile."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.cost.breakeven import survival_of
from breakeven.errors import DataError, RecipeError


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
    """``0.8,0.6,0.5`` (conditional rates) or the path of a ``speculation_profile.json``.

    >>> read_acceptance("0.8,0.6").rates
    (0.8, 0.6)
    """
    if text.endswith(".json"):
        return _from_profile(Path(text))
    try:
        rates = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise RecipeError(
            f"--acceptance '{text}': conditional rates such as 0.8,0.6,0.5, or the path of a"
            " speculation_profile.json"
        ) from None
    return Acceptance(_checked(rates, "--acceptance"))


def _from_profile(path: Path) -> Acceptance:
    """Measured rates; those of a free first token, which are 1, are left out."""
    try:
        profile: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rates = tuple(float(rate) for rate in profile["conditional_accept_rates"])
        width = profile.get("measurement_conditions", {}).get("verify_width")
        free = int(width is not None and int(width) == int(profile["num_speculative_tokens"]))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `breakeven bench` writes profiles") from None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a speculation profile ({error!r})") from None
    if not rates[free:]:
        raise DataError(f"{path}: no acceptance beyond the free first token")
    return Acceptance(_checked(rates[free:], str(path)), str(path))


def _checked(rates: tuple[float, ...], where: str) -> tuple[float, ...]:
    for rate in rates:
        if not 0.0 <= rate <= 1.0:
            raise RecipeError(f"{where}: {rate:g} is not a probability; give values in 0–1")
    return rates
