"""The answers to "does it pay?": yes, no, nobody knows yet, or it must not be used."""

from __future__ import annotations

from enum import StrEnum

from breakeven.measure.audit import Audited, Finding
from breakeven.measure.performance import Performance


class Answer(StrEnum):
    """The answer to "does it pay?", of one configuration and of a whole run."""

    PAYS = "pays"
    UNDECIDED = "undecided"
    DOES_NOT_PAY = "does not pay"
    NOT_USABLE = "not usable"


def answer(row: Performance, audit: Audited | None = None) -> Answer:
    """A bug overrides all; else the 95 % interval of the ratio decides (unknown: undecided)."""
    if audit is not None and audit.verdict is Finding.BUG:
        return Answer.NOT_USABLE
    if row.ratio_low > 1:
        return Answer.PAYS
    return Answer.DOES_NOT_PAY if row.ratio_high < 1 else Answer.UNDECIDED
