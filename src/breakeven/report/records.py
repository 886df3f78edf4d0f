"""The rows of a run's files, checked while they are read (docs/formats.md).

Unknown columns are kept out silently: a newer benchmark may write more. Empty cells and ``nan``
become None.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from breakeven.measure.wording import WILD

ALL = "all"
"""The category of the rows that cover every category."""
PLAIN = "ar"
"""The configuration name of plain decoding."""


def _number(value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None  # pydantic knows no other kind
    return number if math.isfinite(number) else None


Number = Annotated[float | None, BeforeValidator(_number)]
Count = Annotated[int, BeforeValidator(lambda value: int(_number(value) or 0))]


class Row(BaseModel):
    """A frozen row; columns it does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Performance(Row):
    """A row of ``performance.csv``; times are in plain decoding steps."""

    config: str
    category: str
    tokens_per_s: Number = None
    ratio: Number = None
    ratio_low: Number = None
    ratio_high: Number = None
    end_to_end_ratio: Number = None
    c_d: Number = None
    c_v: Number = None
    c_s: Number = None
    break_even: Number = None
    acceptance_length: Number = None
    spread: Number = None
    prompts: Count = 0

    @property
    def says_nothing(self) -> bool:
        """Whether the ends of the interval lie so far apart that it excludes hardly anything."""
        low, high = self.ratio_low, self.ratio_high
        return low is not None and high is not None and high > WILD * low


class Acceptance(Row):
    """A row of ``acceptance.csv``; ``survival`` gathers ``survival_1 … survival_K``.

    ``reached`` are the shares of rounds that drafted so far, ``drafted_1 … drafted_K``; empty in
    files that have no such columns.
    """

    config: str
    category: str
    rounds: Count = 0
    drafted: Count = 0
    accepted: Count = 0
    committed: Count = 0
    acceptance_length: Number = None
    acceptance_rate: Number = None
    survival: tuple[float, ...] = ()
    reached: tuple[float, ...] = ()

    @property
    def width(self) -> float | None:
        """Rows of a verify pass on average, were no draft free: the root and the drafts."""
        return 1 + self.drafted / self.rounds if self.rounds else None

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, row: dict[str, Any]) -> dict[str, Any]:
        return {
            **row,
            "survival": row.get("survival", _numbered(row, "survival")),
            "reached": row.get("reached", _numbered(row, "drafted")),
        }


def _numbered(row: dict[str, Any], name: str) -> tuple[float, ...]:
    """The values of ``name_1``, ``name_2`` … up to the first that is not known."""
    values: list[float] = []
    while (value := _number(row.get(f"{name}_{len(values) + 1}"))) is not None:
        values.append(value)
    return tuple(values)


class Divergence(Row):
    """One place where a drafter's output left plain decoding's."""

    id: str
    position: int
    expected: int | str | None = None
    got: int | str | None = None
    gap: Number = None
    context: str = ""
    expected_text: str | None = None
    got_text: str | None = None
    verdict: str = Field(default="?", alias="class")


class Margins(Row):
    """Histogram of top-1 minus top-2 logit: ``counts[i]`` lies in ``edges[i] … edges[i+1]``."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @model_validator(mode="after")
    def _fits(self) -> Margins:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"{len(self.edges)} edges for {len(self.counts)} counts")
        return self


class Audit(Row):
    """The exactness audit of one configuration."""

    config: str
    level: str = ""
    verdict: str
    requests: Count = 0
    differing: Count = 0
    tokens: Count = 0
    drafted: Count = 0
    divergences: tuple[Divergence, ...] = ()
    margins: Margins | None = None


class Verdict(Row):
    """What the benchmark concluded: ``pays``, ``undecided``, ``does not pay``, ``not usable``."""

    verdict: str
    sentence: str
    best: str | None = None
    ratio: Number = None
    ratio_low: Number = None
    ratio_high: Number = None
    reasons: tuple[str, ...] = ()


class RequestRow(Row):
    """A line of ``requests.jsonl``, without its token ids."""

    config: str
    repeat: Count = 0
    id: str
    category: str = ""
    decode_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    rounds: Count = 0
    committed: Count = 0
    drafted_histogram: tuple[Annotated[int, Field(ge=0, lt=2**53)], ...] = ()
