"""What each group of an ablation says, in words computed from the numbers and their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.ablation.outcome import Outcome, estimate_row
from breakeven.measure.differences import joint_differences
from breakeven.measure.statistics import Estimate

UNIT = "tokens per round"


@dataclass(frozen=True, slots=True)
class Difference:
    """How many more tokens per round a variant commits than the one it is compared with.

    ``by_seed`` are the differences of each seed alone. Seeds are not resampled: an interval is
    about other prompts, not about other trainings.
    """

    against: str
    estimate: Estimate
    by_seed: Mapping[int, float]

    @property
    def shown(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.estimate.low > 0 or self.estimate.high < 0

    @property
    def agreed(self) -> bool:
        """Whether every seed's difference has the sign of the whole."""
        return all(value * self.estimate.value > 0 for value in self.by_seed.values())

    def row(self) -> dict[str, Any]:
        """The entry in ``ablation.json``."""
        return {
            "against": self.against,
            **estimate_row(self.estimate),
            "by_seed": dict(self.by_seed),
        }


def differences(outcomes: Mapping[str, Outcome], *, seed: int = 0) -> dict[str, Difference]:
    """Of every variant whose counterpart has been decoded too; the intervals hold all at once.

    Only prompts on which both played a round can be compared: these are the same for all, because
    all give plain decoding's answers.
    """
    compared = [
        (own, outcomes[own.variant.against])
        for own in outcomes.values()
        if own.variant.against in outcomes and own.variant.against != own.variant.name
    ]
    estimates = joint_differences([(a.totals, b.totals) for a, b in compared], seed=seed)
    return {
        own.variant.name: Difference(
            against=other.variant.name,
            estimate=estimate,
            by_seed={s: own.by_seed[s] - other.by_seed[s] for s in own.by_seed},
        )
        for (own, other), estimate in zip(compared, estimates, strict=True)
    }


def findings(outcomes: Sequence[Outcome], found: Mapping[str, Difference]) -> list[str]:
    """One sentence per compared variant of a group, then one about the group."""
    compared = [o for o in outcomes if o.variant.name in found]
    sentences = [sentence(o.variant.shown, found[o.variant.name], o.speed) for o in compared]
    if len(compared) > 1:
        sentences.append(_summary({o.variant.name: found[o.variant.name] for o in compared}))
    return sentences


def sentence(shown: str, difference: Difference, speed: Estimate) -> str:
    """One variant against its counterpart.

    >>> low = Difference("own", Estimate(-0.41, -0.55, -0.28), {0: -0.4, 1: -0.42})
    >>> sentence("v3 (reads the mismatched cache)", low, Estimate(0.62, 0.6, 0.64))
    "v3 (reads the mismatched cache): −0.41 (−0.55 to −0.28) tokens per round against own; 0.62 (0.60 to 0.64) of plain decoding's speed"
    """  # noqa: E501 - one line is what is printed
    doubt = ""
    if math.isnan(difference.estimate.low):
        doubt = ", from one prompt"
    elif not difference.shown:
        doubt = ", no difference shown"
    elif not difference.agreed:
        seeds = ", ".join(signed(value) for value in difference.by_seed.values())
        doubt = f", but the seeds disagree ({seeds})"
    return (
        f"{shown}: {interval(difference.estimate, signed)} {UNIT} against {difference.against}"
        f"{doubt}; {interval(speed)} of plain decoding's speed"
    )


def _summary(found: Mapping[str, Difference]) -> str:
    """What the group's differences say together."""
    sure = {name: d for name, d in found.items() if d.shown and d.agreed}
    if not sure:
        bounds = [abs(b) for d in found.values() for b in (d.estimate.low, d.estimate.high)]
        return f"no choice of this group shows a difference; none is larger than {max(bounds):.2f}"
    ranked = sorted(sure, key=lambda name: sure[name].estimate.value)
    parts = []
    if (best := sure[ranked[-1]]).estimate.value > 0:
        parts.append(f"most gained: {ranked[-1]}, {interval(best.estimate, signed)}")
    if (worst := sure[ranked[0]]).estimate.value < 0:
        parts.append(f"most lost: {ranked[0]}, {interval(worst.estimate, signed)}")
    undecided = [name for name in found if name not in sure]
    if undecided:
        parts.append(f"undecided: {', '.join(undecided)}")
    return "; ".join(parts)


def plain(value: float) -> str:
    """Two digits; a dash for what is not known.

    >>> plain(1.5), plain(math.nan)
    ('1.50', '–')
    """
    return "–" if math.isnan(value) else f"{value:.2f}"


def signed(value: float) -> str:
    """Two digits with their sign.

    >>> signed(0.5), signed(-0.5)
    ('+0.50', '−0.50')
    """
    return "–" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def interval(estimate: Estimate, shown: Any = plain) -> str:
    """A value and its interval, e.g. ``1.62 (1.55 to 1.70)``; the value alone if there is none."""
    if math.isnan(estimate.low):
        return str(shown(estimate.value))
    return f"{shown(estimate.value)} ({shown(estimate.low)} to {shown(estimate.high)})"
