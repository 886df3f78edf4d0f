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
from breakeven.cost.truncation import expected_price
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
    rounds that drafted all K tokens. ``rides``: each verify pass makes the drafts of the next.
    """

    drafter: str | None
    k: int
    free: int
    prompt: int
    tokens: int
    committed: float
    seconds: float
    plain_seconds: float
    rides: bool = False

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
    tokens = min(tokens, verifier.shape.max_positions - size)
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
                rides=method.drafter.aboard == "rows",
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
        predicted=predict(
            calibration, own.drafter, own.k, survival, own.tokens - 1, own.prompt, rides=own.rides
        ),
        measured=own.plain_seconds / own.seconds,
    )


def predict(
    calibration: Calibration,
    drafter: str | None,
    k: int,
    survival: Sequence[float],
    tokens: int,
    prompt: int = 0,
    *,
    rides: bool = False,
) -> float:
    """Speed relative to plain decoding for ``tokens`` tokens after the first.

    ``drafter`` None drafts for nothing. The last rounds are cut at the limit and draft no more than
    it leaves; a drafter that reads the ``prompt`` (tokens) itself pays for that once. Where drafts
    ride in the verify pass before, the first round has none and brings one token.
    """
    outside = calibration.outside(drafter, k)
    bare = calibration.seconds(k + 1 if rides else 1) + outside  # nothing is drafted
    whole = _round_seconds(calibration, drafter, k)

    def seconds(drafts: int) -> float:
        """Of a round that verifies so many drafts."""
        if rides:  # every row of the chain has its group of masks
            return bare + (whole - bare) * drafts / k
        return _round_seconds(calibration, drafter, drafts) if drafts else bare

    spent = calibration.start(drafter, k, prompt) if drafter else 0.0
    spent += bare * rides + expected_price(survival, tokens - rides, seconds)
    return tokens * calibration.step() / spent


def _round_seconds(calibration: Calibration, drafter: str | None, k: int) -> float:
    if drafter is None:
        return calibration.seconds(k + 1) + calibration.outside(None, k)
    return calibration.round_cost(drafter, k).break_even * calibration.step()
