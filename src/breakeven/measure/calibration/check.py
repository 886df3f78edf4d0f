"""Is the prediction right? Decode for real with scripted drafts and compare.

Every drafter does its work with random weights, a script replaces the tokens it proposes by
right and wrong ones in the asked shares. So time, passes and bookkeeping are real, and only
acceptance is synthetic. The prediction uses the calibration and arithmetic alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from breakeven.cost.breakeven import expected_committed
from breakeven.cost.calibration import Calibration
from breakeven.cost.truncation import expected_rounds
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import Dressed, Script, Synthetic
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.rounds import NOTHING
from breakeven.measure.configuration import PLAIN
from breakeven.measure.schedule import interleaved
from breakeven.measure.trial import Decoding, Method, quiet_collector, warm_up
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

TARGET, ENOUGH = 0.05, 0.9
"""A prediction is good within 5 %; the cost model is, when 9 of 10 predictions are."""
PROMPTS, REPEATS, TOKENS = 1, 5, 64


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
    tokens: int = TOKENS,
    prompts: int = PROMPTS,
    repeats: int = REPEATS,
    seed: int = 0,
) -> list[Checked]:
    """Decode ``prompts`` random prompts ``repeats`` times in every configuration, interleaved."""
    size = max(1, calibration.base - tokens // 2)
    order = random.Random(seed + 1)
    vocabulary = range(verifier.shape.vocab_size)
    asked = [Asked(f"r{i}", tuple(order.choices(vocabulary, k=size))) for i in range(prompts)]
    decoding = Decoding(verifier, frozenset(), tokens)
    script = {a.prompt_ids: decoding.run(Method(), a)[0].tokens for a in asked}
    methods = [Method(), *_methods(calibration, verifier, acceptance, script, seed)]
    warm_up(decoding, methods, asked[0])
    seconds, rounds = _decode(decoding, methods, asked, repeats, seed)
    found = []
    for method in methods[1:]:
        assert method.drafter is not None
        survival = acceptance.survival(method.k, method.drafter.free)
        done = rounds[method.name]
        found.append(
            Checked(
                config=method.name,
                k=method.k,
                committed=expected_committed(survival),
                measured_committed=1 + sum(done) / len(done),
                predicted=predict(calibration, _priced(method), method.k, survival, tokens - 1),
                measured=_ratio(seconds[PLAIN], seconds[method.name]),
            )
        )
    return found


def predict(
    calibration: Calibration, drafter: str | None, k: int, survival: Sequence[float], tokens: int
) -> float:
    """Speed relative to plain decoding for ``tokens`` tokens after the first.

    ``drafter`` None drafts for nothing. The last round is cut at the limit, which the expected
    number of rounds counts.
    """
    if drafter is None:
        verify = calibration.seconds(k + 1) / calibration.step()
        price = verify + calibration.outside(None, k) / calibration.step()
    else:
        price = calibration.round_cost(drafter, k).break_even
    return tokens / (expected_rounds(survival, tokens) * price)


def _methods(
    calibration: Calibration, verifier: Verifier, acceptance: Acceptance, script: Script, seed: int
) -> list[Method]:
    """Free drafting and every drafter of the calibration, each with a few draft lengths."""
    methods = []
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
            tokens = Synthetic(script, verifier.shape.vocab_size, rates, seed)
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


def _decode(
    decoding: Decoding, methods: Sequence[Method], asked: Sequence[Asked], repeats: int, seed: int
) -> tuple[dict[str, dict[str, list[float]]], dict[str, list[int]]]:
    """Decode seconds by method and prompt, and the accepted drafts of every untruncated round."""
    by_name = {method.name: method for method in methods}
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in by_name}
    accepted: dict[str, list[int]] = {name: [] for name in by_name}
    order = list(interleaved(list(by_name), len(asked), repeats, seed))
    with quiet_collector(), meter("check", total=len(order)) as progress:
        for _, index, name in order:
            completion, ledger = decoding.run(by_name[name], asked[index])
            spent = ledger.wall_s - ledger.passes[0].seconds
            seconds[name].setdefault(asked[index].id, []).append(spent)
            whole = [r for r in completion.rounds if r.drafted == by_name[name].k]
            accepted[name] += [r.accepted for r in whole]
            progress.advance()
    return seconds, accepted


def _ratio(plain: dict[str, list[float]], own: dict[str, list[float]]) -> float:
    """The middle one of the repeats' ratios: a disturbed one does no harm."""
    totals = [
        [sum(times) for times in zip(*seconds.values(), strict=True)] for seconds in (plain, own)
    ]
    return float(median(a / b for a, b in zip(*totals, strict=True)))
