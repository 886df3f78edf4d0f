"""Reading ``speculation_profile.json``: how often the drafts of a drafter were right, by position.

Its writer is :mod:`breakeven.measure.profiles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from breakeven.errors import DataError, RecipeError
from breakeven.files import read_json

PROFILE_FILE = "speculation_profile.json"


def read_rates(path: Path) -> tuple[float, ...]:
    """The conditional acceptance rates of the guesses, each given that those before it were right.

    That of a free first token, which is 1, is left out. A missing or malformed file is a
    :class:`DataError`.
    """
    try:
        profile: dict[str, Any] = read_json(path)
        rates = tuple(float(rate) for rate in profile["conditional_accept_rates"])
        width = profile.get("measurement_conditions", {}).get("verify_width")
        free = int(width is not None and int(width) == int(profile["num_speculative_tokens"]))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `breakeven bench` writes profiles") from None
    except (OSError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a speculation profile ({error!r})") from None
    if not rates[free:]:
        raise DataError(f"{path}: no acceptance beyond the free first token")
    return checked_rates(rates[free:], str(path))


def checked_rates(rates: Sequence[float], where: str) -> tuple[float, ...]:
    """``rates`` if they are probabilities; a :class:`RecipeError` that says ``where`` if not."""
    for rate in rates:
        if not 0.0 <= rate <= 1.0:
            raise RecipeError(f"{where}: {rate:g} is not a probability; give values in 0–1")
    return tuple(rates)
