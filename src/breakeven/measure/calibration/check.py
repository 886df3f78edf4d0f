"""Is the prediction right? Decode for real with scripted drafts and compare.

Every drafter does its work with random weights, a script replaces the tokens it proposes by
right and wrong ones in the asked shares. So time, passes and bookkeeping are real, and only
acceptance is synthetic. The answers grow in the minutes in which rounds are priced
(:mod:`breakeven.measure.calibration.rounds`), in turns, because a machine's prices do not hold
much longer than that. The prediction uses the prices and arithmetic alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from breakeven.cost.breakeven import expected_committed
from breakeven.cost.calibration import Calibration
from breakeven.cost.truncation import expected_rounds
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import Dressed, Script, Synthetic
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.calibration.together import SideBySide
from breakeven.measure.calibration.walkers import NOTHING
from breakeven.measure.configuration import PLAIN
from breakeven.measure.trial import Decoding, Method
from breakeven.verifier.interface import Verifier

TARGET, ENOUGH = 0.05, 0.9
"""A prediction is good within 5 %; the cost model is, when 9 of 10 predictions are."""
TOKENS = 96
"""Of each answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt of random tokens."""

    id: str
    prompt_ids: tuple[int, ...]
    category: str = "random"


@dataclass(frozen=True, slots=True)
class Tried:
    """A configuration that has decoded: ``drafter`` None drafted for nothing.

    ``seconds`` are those of all its answers, each of ``tokens`` tokens behind ``prompt`` tokens,
    and ``plain_seconds`` those of plain decoding beside them. ``committed`` is the mean over the
    rounds that drafted all K tokens.
    """

    drafter: str | None
    k: int
    free: int
    prompt: int
    tokens: int
    committed: float
    seconds: float
    plain_seconds: float

    @property
    def config(self) -> str:
        """Its name in the table."""
        return f"{self.drafter or NOTHING}-k{self.k}"


@dataclass(frozen=True, slots=True)
class Checked:
    """One configuration: speeds relative to plain decoding, acceptance length before truncation."""

    config: str
    k: int
    committed: float
    measured_committed: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1

    @property
    def good(self) -> bool:
        """Whether the prediction is within :data:`TARGET`."""
        return abs(self.error) <= TARGET

    def row(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "error": self.error, "good": self.good}


def summary(found: Sequence[Checked]) -> str:
    """The line under the table."""
    good = sum(c.good for c in found)
    word = "met" if good >= ENOUGH * len(found) else "missed"
    return (
        f"predicted within {100 * TARGET:.0f} % of measured in {good} of {len(found)}"
        " configurations"
        f" (target: 9 of 10, {word})"
    )


def answers_beside(
    verifier: Verifier,
    plan: CalibrationPlan,
    acceptance: Acceptance,
    seconds: float,
    tokens: int = TOKENS,
) -> SideBySide:
    """Plain decoding, free drafts and every drafter of the plan, to be decoded beside its rounds.

    About so many ``seconds`` in all.
    """
    size = max(1, plan.base - tokens // 2)
    order = random.Random(plan.seed + 1)
    asked = Asked("random", tuple(order.choices(range(verifier.shape.vocab_size), k=size)))
    plainly = Decoding(verifier, frozenset(), tokens).run(Method(), asked)[0]
    script = {asked.prompt_ids: plainly.tokens}
    methods = [Method(), *_methods(verifier, plan, acceptance, script)]
    return SideBySide(verifier, methods, asked.prompt_ids, tokens, seconds, plan.seed)


def _methods(
    verifier: Verifier, plan: CalibrationPlan, acceptance: Acceptance, script: Script
) -> list[Method]:
    """Free drafting and every drafter of the plan, each with a few draft lengths."""
    methods: list[Method] = []
    for name, k in product((NOTHING, *plan.drafters), _some(plan.lengths)):
        worker = None if name == NOTHING else untrained(name, verifier, k)
        free = worker.free if worker else 0
        if (worker is None and name != NOTHING) or k <= free:
            continue
        rates = acceptance.conditional(k, free)
        # each starts elsewhere, so that chance does not favour them all
        tokens = Synthetic(script, verifier.shape.vocab_size, rates, plan.seed + len(methods))
        drafter: Drafter = Dressed(worker, tokens) if worker else tokens
        methods.append(Method(f"{name}-k{k}", drafter, k))
    return methods


def _some(lengths: Sequence[int]) -> tuple[int, ...]:
    """At most three: the shortest, one from the middle, the longest."""
    ordered = sorted(lengths)
    return tuple(sorted({ordered[0], ordered[len(ordered) // 2], ordered[-1]}))


def tried(done: SideBySide) -> list[Tried]:
    """What the answers took, when all of them are there."""
    plain_s = sum(a.seconds for a in done.answers[PLAIN])
    found = []
    for method in done.methods:
        if method.drafter is None:
            continue
        own = done.answers[method.name]
        whole = [r.accepted for a in own for r in a.rounds if r.drafted == method.k]
        name = method.name.rpartition("-k")[0]
        found.append(
            Tried(
                drafter=None if name == NOTHING else name,
                k=method.k,
                free=method.drafter.free,
                prompt=len(done.prompt),
                tokens=done.tokens,
                committed=1 + sum(whole) / len(whole),
                seconds=sum(a.seconds for a in own),
                plain_seconds=plain_s,
            )
        )
    return found


def compared(
    calibration: Calibration, acceptance: Acceptance, found: Iterable[Tried]
) -> list[Checked]:
    """What the calibration says of each configuration, beside what it did."""
    return [_compared(calibration, acceptance, own) for own in found]


def _compared(calibration: Calibration, acceptance: Acceptance, own: Tried) -> Checked:
    survival = acceptance.survival(own.k, own.free)
    return Checked(
        config=own.config,
        k=own.k,
        committed=expected_committed(survival),
        measured_committed=own.committed,
        predicted=predict(calibration, own.drafter, own.k, survival, own.tokens - 1, own.prompt),
        measured=own.plain_seconds / own.seconds,
    )


def predict(
    calibration: Calibration,
    drafter: str | None,
    k: int,
    survival: Sequence[float],
    tokens: int,
    prompt: int = 0,
) -> float:
    """Speed relative to plain decoding for ``tokens`` tokens after the first.

    ``drafter`` None drafts for nothing. The last round is cut at the limit, which the expected
    number of rounds counts; a drafter that reads the ``prompt`` (tokens) itself pays for that once.
    """
    step, start = calibration.step(), 0.0
    if drafter is None:
        price = (calibration.seconds(k + 1) + calibration.outside(None, k)) / step
    else:
        price = calibration.round_cost(drafter, k).break_even
        start = calibration.start(drafter, k, prompt) / step
    return tokens / (start + expected_rounds(survival, tokens) * price)
