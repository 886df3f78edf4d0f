"""The verdict in words: one sentence for everybody, and the reasons behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.counting import counted
from breakeven.measure.acceptance import ALL
from breakeven.measure.answers import Answer, answer
from breakeven.measure.audit import Audited, Finding
from breakeven.measure.doubts import more
from breakeven.measure.performance import Performance
from breakeven.measure.statistics import prompts_to_decide

MANY_PROMPTS = 1000
ANYTHING = "pays whatever is accepted"
"""What a break-even below 1 means: a round costs less than a plain step and yields a token."""
TIMES = 2.0
"""From here on a ratio is told as times, not as per cent."""
WILD = 3.0
"""An interval whose ends lie further apart than this factor tells nothing."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where and on what was measured, as the sentence names it."""

    verifier: str
    machine: str
    prompts: int

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Scene:
        """From the content of ``configuration.json``."""
        facts = description["machine"]
        count = facts.get("threads", "unknown")
        threads = f"{count} thread{'s' if count != 1 else ''}"
        machine = str(facts.get("gpu") or f"{facts.get('cpu', 'unknown CPU')}, {threads}")
        return cls(description["verifier"]["name"], machine, description["prompts"])


def summary_line(audit: Audited) -> str:
    """One line a person can read about one configuration."""
    scale = f"{counted(audit.tokens, 'token')} of {counted(len(audit.outputs), 'answer')}"
    match str(audit.verdict):
        case "equal":
            return f"{audit.config}: equal, {scale} are plain decoding's own"
        case "near-tie":
            gap = max(d.gap or 0.0 for d in audit.divergences)
            return (
                f"{audit.config}: near-tie, {audit.differing} of {len(audit.outputs)} answers "
                f"leave plain decoding's where two tokens are level (largest gap {gap:.2g} logits)"
            )
        case "inconclusive":
            return f"{audit.config}: inconclusive, 0 tokens drafted in {scale}"
    if not audit.bugs:
        assert audit.control is not None
        return (
            f"{audit.config}: bug, padding a pass to {audit.control.width} rows moves logits by "
            f"{audit.control.noise:.2g}, rounding explains {audit.control.limit:.2g} at most"
        )
    worst = audit.bugs[0]
    return (
        f"{audit.config}: bug, not the verifier's own: {counted(len(audit.bugs), 'token')}, the "
        "first at "
        f"position {worst.position} of '{worst.id}'"
    )


def speed(ratio: float, *, beside: float = 1.0) -> str:
    """A ratio of speeds in words; its unit suits the ratio ``beside`` it in the sentence as well.

    >>> speed(1.214), speed(0.93), speed(2.5), speed(1.001)
    ('21 % faster', '7 % slower', '2.5 times as fast', '0 % faster')
    >>> speed(1.214, beside=2.5)
    '1.21 times as fast'
    """
    if ratio >= TIMES:
        return f"{ratio:.1f} times as fast"
    if beside >= TIMES:
        return f"{ratio:.2f} times as fast"
    change = round(100 * (ratio - 1))
    return f"{-change} % slower" if change < 0 else f"{change} % faster"


def between(low: float, high: float) -> str:
    """An interval of ratios in words.

    >>> between(1.14, 1.27)
    'between 14 % and 27 % faster'
    >>> between(0.97, 1.08)
    'between 3 % slower and 8 % faster'
    >>> between(1.33, 2.1)
    'between 1.33 times as fast and 2.1 times as fast'
    """
    left, right = speed(low, beside=high), speed(high)
    if left.endswith("% faster") and right.endswith("% faster"):
        left = left.removesuffix(" faster")
    if left.endswith("slower") and right.endswith("slower"):
        left, right = right.removesuffix(" slower"), left
    return f"between {left} and {right}"


def sentence(found: Answer, best: Performance, audit: Audited | None, scene: Scene) -> str:
    """The verdict in one plain sentence about the ``best`` configuration, and its audit."""
    if found is Answer.NOT_USABLE:
        assert audit is not None
        return (
            f"Not usable: {best.config} gives answers that are not {scene.verifier}'s own "
            f"({audit.differing} of {len(audit.outputs)} differ), which is a bug, so its speed "
            "does not count."
        )
    if math.isnan(best.ratio):
        return "Undecided: no answer had a second token, so there was no decoding to compare."
    wild = found is Answer.UNDECIDED and best.ratio_high > WILD * best.ratio_low
    known = speed(best.ratio, beside=1.0 if wild else best.ratio_high)
    measured = f"{known} {'as' if known.endswith('fast') else 'than'}"
    where = f"plain decoding of {scene.verifier} on this machine ({scene.machine})"
    if math.isnan(best.ratio_low):
        return (
            f"Undecided: {best.config} is {measured} {where}, but {_few(best.prompts)} no interval."
        )
    if wild:
        return (
            f"Undecided: {best.config} is {measured} {where} on {best.prompts} prompts, which "
            "are too few to be sure of anything."
        )
    sure = f"with 95 % confidence {between(best.ratio_low, best.ratio_high)}"
    match found:
        case Answer.PAYS:
            return f"It pays: {best.config} is {measured} {where}, {sure}, {exactness(audit)}."
        case Answer.DOES_NOT_PAY:
            return (
                f"It does not pay: the best configuration, {best.config}, is {measured} {where}, "
                f"{sure}, because a round yields {best.acceptance_length:.2f} tokens and costs as "
                f"much as {best.break_even:.2f} plain steps."
            )
    return f"Undecided: {best.config} is {measured} {where}, but {sure}."


def remedy(row: Performance, compared: int = 1) -> str:
    """How many prompts would decide an undecided ratio among ``compared``."""
    if math.isnan(row.ratio_low) or row.ratio_high > WILD * row.ratio_low:
        return f"{more(row.prompts)} prompts"
    needed = prompts_to_decide(row.spread, row.ratio, compared)
    if needed > MANY_PROMPTS:
        return f"so small a difference would not be settled by {MANY_PROMPTS} prompts"
    needed = max(needed, row.prompts + 1)
    return f"about {needed:.0f} prompts instead of {row.prompts} would decide"


def exactness(audit: Audited | None) -> str:
    """What the audit lets us say of the answers."""
    if audit is None:
        return "but whether its answers are the same was not checked"
    if audit.verdict is Finding.NEAR_TIE:
        return (
            "and its answers are the same but for rounding between tokens that are level "
            f"({audit.differing} of {len(audit.outputs)} answers)"
        )
    return "and its answers are the same"


def reasons(
    performance: Sequence[Performance], answers: Mapping[str, Answer], audits: Mapping[str, Audited]
) -> Iterator[str]:
    """What stands behind the verdict, configuration by configuration."""
    if len(answers) > 1:
        yield (
            f"{len(answers)} configurations are compared: the 95 % intervals here are wider than "
            "each one's own (performance.csv), so that they hold for the best of them"
        )
    for row in performance:
        if row.category != ALL or row.config not in answers:
            continue
        found, audit = answers[row.config], audits.get(row.config)
        if found is Answer.NOT_USABLE and audit is not None:
            yield summary_line(audit)
            continue
        if math.isnan(row.ratio):
            yield f"{row.config} is undecided: no answer had a second token"
            continue
        yield account(row, found)
        if found is Answer.UNDECIDED:
            yield f"{row.config}: {remedy(row, len(answers))}"
        if found is not Answer.PAYS:
            yield outlook(row)
        groups = [p for p in performance if p.config == row.config and p.category != ALL]
        if len(groups) > 1:  # one category is all there is: it has no exceptions
            yield from exceptions(row.config, groups, found)
        if audit is not None and audit.verdict is not Finding.EQUAL:
            yield summary_line(audit)


def account(row: Performance, found: Answer) -> str:
    """Income and price of a round beside the measured ratio."""
    return (
        f"{row.config} {'is undecided' if found is Answer.UNDECIDED else found}: "
        f"{_ratio(row)}; a round yields {row.acceptance_length:.2f} tokens and costs "
        f"{row.break_even:.2f} plain steps (draft {row.c_d:.2f}, verify {row.c_v:.2f}, "
        f"rest {row.c_s:.2f})"
    )


def outlook(row: Performance) -> str:
    """What would have to change: acceptance, the price of drafts, or that of the verify pass."""
    income, flat = row.acceptance_length, min(row.c_v, 1.0)
    free, level, both = (
        income / price for price in (row.c_v + row.c_s, row.c_d + flat + row.c_s, flat + row.c_s)
    )
    return (
        f"{row.config} {would_pay(row.break_even)}; "
        f"with free drafts it would be {speed(free, beside=both)}, "
        f"with a verify pass at the price of a plain step {speed(level, beside=both)}, "
        f"with both {speed(both)}"
    )


def would_pay(break_even: float) -> str:
    """The break-even in plain words.

    >>> would_pay(1.4), would_pay(0.83)
    ('would pay with more than 1.40 tokens a round', 'pays whatever is accepted')
    """
    if break_even < 1:
        return ANYTHING
    return f"would pay with more than {break_even:.2f} tokens a round"


def exceptions(config: str, groups: Sequence[Performance], found: Answer) -> Iterator[str]:
    """Categories in which a configuration is surely on the other side."""
    for other in (Answer.PAYS, Answer.DOES_NOT_PAY):
        if other is found:
            continue
        named = [f"{g.category} ({_ratio(g)})" for g in groups if answer(g) is other]
        if named:
            yield f"{config} {other} on {', '.join(named)}"


def _ratio(row: Performance) -> str:
    if math.isnan(row.ratio_low):
        return f"ratio {row.ratio:.2f}, no interval"
    return f"ratio {row.ratio:.2f}, 95 % {row.ratio_low:.2f}–{row.ratio_high:.2f}"


def _few(prompts: int) -> str:
    return "1 prompt gives" if prompts == 1 else f"{prompts} prompts give"
