"""What a calibration measures, and how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from breakeven.errors import RecipeError
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.verifier.interface import ModelShape

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 17, 24, 32, 48, 64)
CONTEXTS = (32, 128, 512)
BATCHES = (1, 4)
LENGTHS = (1, 2, 4)
BASE = 128
MINUTES, MINUTES_CHECKED = 3.0, 6.0
"""For everything, without and with the check against real decoding."""
WIDEST_ELSEWHERE = 17
"""Rows of a request's widest pass but for one request behind the base context."""
SHARES = {"passes": 0.35, "rounds": 0.35, "modes": 0.1}
SHARES_CHECKED = {"passes": 0.2, "rounds": 0.23, "modes": 0.04, "answers": 0.38}
"""Of the time; the rest goes to loading the model and building the drafters."""


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """``widths`` rows per request, ``contexts`` cached tokens, ``batches`` requests together.

    ``lengths`` are the K of every drafter in ``drafters``, measured behind ``base`` tokens;
    ``minutes`` is for everything; with ``acceptance`` a part of it goes to answers that decode
    with it, against which the predictions are held.
    """

    drafters: tuple[str, ...]
    widths: tuple[int, ...] = WIDTHS
    contexts: tuple[int, ...] = CONTEXTS
    batches: tuple[int, ...] = BATCHES
    lengths: tuple[int, ...] = LENGTHS
    base: int = BASE
    minutes: float = MINUTES
    seed: int = 0
    acceptance: Acceptance | None = None

    def __post_init__(self) -> None:
        for name in ("widths", "contexts", "batches", "lengths"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                name = "k" if name == "lengths" else name
                raise RecipeError(f"{name} {_shown(values)}: give whole numbers from 1 on")
        for name in ("widths", "batches"):
            if 1 not in getattr(self, name):
                raise RecipeError(f"{name} {_shown(getattr(self, name))}: 1 has to be among them")
        if not 0 < self.minutes < inf:
            raise RecipeError(f"{self.minutes:g} minutes: give more than 0; {MINUTES:g} are usual")

    def cells(self) -> list[tuple[int, int, int]]:
        """Every (batch, context, width); the widest passes only at batch 1 and the base."""
        return [
            (batch, context, width)
            for batch in self.batches
            for context in sorted({*self.contexts, self.base})
            for width in self.widths
            if width <= WIDEST_ELSEWHERE or (batch, context) == (1, self.base)
        ]

    def within(self, shape: ModelShape) -> CalibrationPlan:
        """The same with contexts that leave the model's positions room for the widest pass."""
        room = shape.max_positions - max(*self.widths, 2 * max(self.lengths) + 3)
        if room < 2:
            raise RecipeError(
                f"widths up to {max(self.widths)} and K up to {max(self.lengths)}: the model has "
                f"{shape.max_positions} positions; give smaller ones"
            )
        base = min(self.base, max(1, room // 2))
        return replace(
            self, base=base, contexts=tuple(sorted({min(c, room) for c in self.contexts}))
        )

    def of_rounds(self) -> dict[str, object]:
        """What the stage of the rounds depends on."""
        return {
            "drafters": self.drafters, "k": self.lengths, "batches": self.batches,
            "base": self.base, "seed": self.seed,
            "rates": self.acceptance and self.acceptance.rates,
        }  # fmt: skip

    def seconds(self, part: str) -> float:
        """What ``passes``, ``rounds``, ``modes`` or the check's ``answers`` may take."""
        return 60 * self.minutes * (SHARES_CHECKED if self.acceptance else SHARES)[part]


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, ascending.

    >>> numbers("--widths", "4,1,8")
    (1, 4, 8)
    """
    try:
        return tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        raise RecipeError(f"{option} '{text}': write whole numbers with commas, e.g. 1,4") from None


def _shown(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "(none)"
