"""Is the prediction right? Decode for real with scripted drafts and compare.

Every drafter does its work with random weights, a script replaces the tokens it proposes by
right and wrong ones in the asked shares. So time, passes and bookkeeping are real, and only
acceptance is synthetic. The prediction uses the calibration and arithmetic alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from breakeven.cost.breakeven import expected_committed
from breakeven.cost.calibration import Calibration
from breakeven.cost.truncation import expected_rounds
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import Dressed, Script, Synthetic
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.together import Answers, decode_together
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


def check(
    calibration: Calibration,
    verifier: Verifier,
    acceptance: Acceptance,
    *,
    seconds: float = 0.0,
    tokens: int = TOKENS,
    seed: int = 0,
) -> list[Checked]:
    """Decode random prompts in every configuration, side by side, for about so many ``seconds``."""
    size = max(1, calibration.base - tokens // 2)
    order = random.Random(seed + 1)
    asked = Asked("random", tuple(order.choices(range(verifier.shape.vocab_size), k=size)))
    plainly = Decoding(verifier, frozenset(), tokens).run(Method(), asked)[0]
    script = {asked.prompt_ids: plainly.tokens}
    methods = [Method(), *_methods(calibration, verifier, acceptance, script, seed)]
    answers = decode_together(verifier, methods, asked.prompt_ids, tokens, seconds, seed)
    found = []
    for method in methods[1:]:
        assert method.drafter is not None
        survival = acceptance.survival(method.k, method.drafter.free)
        predicted = predict(calibration, _priced(method), method.k, survival, tokens - 1, size)
        found.append(_compared(method, survival, predicted, answers))
    return found


def _compared(
    method: Method, survival: Sequence[float], predicted: float, answers: Answers
) -> Checked:
    own = answers[method.name]
    whole = [r.accepted for a in own for r in a.rounds if r.drafted == method.k]
    plain_s, own_s = (sum(a.seconds for a in each) for each in (answers[PLAIN], own))
    return Checked(
        config=method.name,
        k=method.k,
        committed=expected_committed(survival),
        measured_committed=1 + sum(whole) / len(whole),
        predicted=predicted,
        measured=plain_s / own_s,
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


def _methods(
    calibration: Calibration, verifier: Verifier, acceptance: Acceptance, script: Script, seed: int
) -> list[Method]:
    """Free drafting and every drafter of the calibration, each with a few draft lengths."""
    methods: list[Method] = []
    for name in (NOTHING, *calibration.drafters):
        lengths = (
            _some(calibration.draft_lengths(name))
            if name != NOTHING
            else _free_lengths(calibration)
        )
        for k in lengths:
            worker = None if name == NOTHING else untrained(name, verifier, k)
            free = worker.free if worker else 0
            rates = acceptance.conditional(k, free)
            # each starts elsewhere, so that chance does not favour them all
            tokens = Synthetic(script, verifier.shape.vocab_size, rates, seed + len(methods))
            drafter: Drafter = Dressed(worker, tokens) if worker else tokens
            methods.append(Method(f"{name}-k{k}", drafter, k))
    return methods


def _free_lengths(calibration: Calibration) -> tuple[int, ...]:
    lengths = {k for name in calibration.drafters for k in calibration.draft_lengths(name)}
    return _some(tuple(sorted(lengths or {1, 2, 4})))


def _some(lengths: Sequence[int]) -> tuple[int, ...]:
    """At most three: the shortest, one from the middle, the longest."""
    return tuple(sorted({lengths[0], lengths[len(lengths) // 2], lengths[-1]}))


def _priced(method: Method) -> str | None:
    name = method.name.rpartition("-k")[0]
    return None if name == NOTHING else name
