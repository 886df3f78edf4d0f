"""A table of texts, and how figures are written in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Mapping[str, Any]]
"""The results of the stages that were run, by stage."""
NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the last column says what differs from the paper's setting."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str

    @property
    def headings(self) -> list[tuple[str, str]]:
        """The columns as the page's headings: text and kind."""
        return [(column, "") for column in self.columns]


def text(value: float | None, digits: int = 3) -> str:
    """A figure; a dash for what is not known.

    >>> text(1.2345), text(float("nan")), text(None)
    ('1.234', '–', '–')
    """
    known = value is not None and math.isfinite(value)
    return f"{value:.{digits}f}" if known else NONE


def spread(speed: Mapping[str, Any]) -> str:
    """Mean ± standard deviation over repeated runs."""
    return text(speed["mean"], 2) + (f" ± {speed['sd']:.2f}" if speed["sd"] is not None else "")


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """A 95 % interval."""
    return NONE if low is None or high is None else f"{low:.{digits}f}–{high:.{digits}f}"


def exactness(audit: Mapping[str, Any]) -> str:
    """Answers equal to plain decoding's, and the audit's word for the rest."""
    same = audit["requests"] - audit["differing"]
    return f"{same} of {audit['requests']} ({audit['verdict']})"


def ms(seconds: float | None) -> str:
    """Milliseconds."""
    return NONE if seconds is None else text(1e3 * seconds, 2)


def ratio(one: float | None, other: float | None) -> float | None:
    """A quotient of two figures that may be unknown."""
    return one / other if one is not None and other else None
