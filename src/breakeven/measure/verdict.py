"""The verdict: does speculation pay here, by how much, and if not, what would have to change?

A configuration *pays* when the lower end of its ratio's 95 % interval lies above 1, *does not
pay* when the upper end lies below 1, and is *undecided* otherwise. The intervals hold for all
configurations of the run at once, so that the best of many is not best by luck. A configuration
whose audit found a bug is *not usable*, however fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from breakeven.measure.acceptance import ALL
from breakeven.measure.answers import Answer, answer
from breakeven.measure.audit import Audited
from breakeven.measure.configuration import PLAIN
from breakeven.measure.doubts import DOUBT
from breakeven.measure.performance import Performance
from breakeven.measure.statistics import Estimate
from breakeven.measure.wording import Scene, reasons, sentence

PRECEDENCE = (Answer.PAYS, Answer.UNDECIDED, Answer.DOES_NOT_PAY, Answer.NOT_USABLE)
"""The run's verdict is the first of these that some configuration has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The content of ``verdict.json``; ``best`` is None when nothing is usable."""

    verdict: Answer
    sentence: str
    best: str | None
    ratio: float
    ratio_low: float
    ratio_high: float
    reasons: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            "best": self.best,
            "ratio": self.ratio,
            "ratio_low": self.ratio_low,
            "ratio_high": self.ratio_high,
            "reasons": list(self.reasons),
        }


def decide(
    performance: Sequence[Performance],
    audits: Sequence[Audited],
    scene: Scene,
    doubts: Sequence[str] = (),
    joint: Mapping[str, Estimate] | None = None,
) -> Verdict:
    """The verdict of a run from its performance rows and audits (none: exactness unknown).

    ``joint`` are intervals that hold for all configurations at once (``joint_ratios``); where one
    is given it replaces the row's own. ``doubts`` end the reasons. The best configuration is, of
    those with the run's verdict, the one with the highest ratio.
    """
    checked = {audit.config: audit for audit in audits}
    judged = [_jointly(row, joint or {}) for row in performance]
    rows = [row for row in judged if row.category == ALL and row.config != PLAIN]
    answers = {row.config: answer(row, checked.get(row.config)) for row in rows}
    found = next(a for a in PRECEDENCE if a in answers.values())
    best = max((row for row in rows if answers[row.config] is found), key=_known_ratio)
    usable = found is not Answer.NOT_USABLE
    return Verdict(
        verdict=found,
        sentence=sentence(found, best, checked.get(best.config), scene),
        best=best.config if usable else None,
        ratio=best.ratio if usable else math.nan,
        ratio_low=best.ratio_low if usable else math.nan,
        ratio_high=best.ratio_high if usable else math.nan,
        reasons=(
            *reasons(judged, answers, checked),
            *(f"{DOUBT}{doubt}" for doubt in doubts),
        ),
    )


def _jointly(row: Performance, joint: Mapping[str, Estimate]) -> Performance:
    """The row with the interval by which it is judged."""
    if row.category != ALL or row.config not in joint:
        return row
    estimate = joint[row.config]
    return replace(row, ratio_low=estimate.low, ratio_high=estimate.high)


def _known_ratio(row: Performance) -> float:
    return -math.inf if math.isnan(row.ratio) else row.ratio
