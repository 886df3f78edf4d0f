"""The oracle in words: each figure with its r and one plain sentence that says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven.cost.breakeven import (
    RoundCost,
    block,
    checked_survival,
    expected_committed,
    sequential,
    survival_of,
)
from breakeven.cost.oracle import PAPER, Oracle
from breakeven.errors import RecipeError
from breakeven.report.outlook import Outlook, outlooks
from breakeven.report.run import load_run
from breakeven.report.variations import USUAL, Ladder, WhatIf, variations, worth


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. ``r`` is the share of drafting time taken away, None where it plays no part."""

    question: str
    r: float | None
    value: float
    unit: str
    meaning: str
    config: str | None = None
    digits: int = 2

    @property
    def answer(self) -> str:
        """The value with its unit."""
        unit = "draft" if self.unit == "drafts" and self.value == 1 else self.unit
        return f"{self.value:.{self.digits}f}{'' if unit == '×' else ' '}{unit}"

    @property
    def r_text(self) -> str:
        """``r`` for a table cell."""
        return "–" if self.r is None else f"{self.r:g}"


def paper_lines() -> tuple[str, list[Line]]:
    """The paper's oracle from its published constants, and the complementary one."""
    p, oracle = PAPER, PAPER.oracle()
    steps = oracle.time.verify * p.plain
    most = p.peft_bd_drafts + 1
    free = oracle.throughput(r=1)
    title = f"{p.source}: PEFT-BD, AL {p.peft_bd_committed} (bonus token included)"
    now = (
        f"A round takes {oracle.time.total * 1e3:.1f} ms ({oracle.time.rho_d:.1%} drafting,"
        f" {oracle.time.rho_v:.1%} verifying) where plain decoding takes {1e3 / p.plain:.2f} ms a"
        f" token: {p.plain / p.peft_bd:.1f}× slower."
    )
    still = (
        f"Twice as fast, and still {p.plain / free:.1f}× slower than plain decoding: the verify"
        f" pass alone takes as long as {steps:.0f} plain steps."
    )
    reach = f"Out of reach: a round of {p.peft_bd_drafts} drafts commits at most {most}."
    return title, [
        Line("PEFT-BD as measured", 0, p.peft_bd, "tok/s", now, digits=3),
        Line("PEFT-BD with drafting free", 1, free, "tok/s", still, digits=3),
        _needed("FastMTP", p.fastmtp, 1, "The paper's “about 8” supposes free drafting."),
        _needed("plain decoding", p.plain, 1, reach),
        _needed("FastMTP", p.fastmtp, 0, "Without free drafting it is twice as many."),
        _needed("plain decoding", p.plain, 0, "Twice what even a perfect draft could commit."),
        *_plain_price(oracle),
    ]


def _needed(rival: str, speed: float, r: float, meaning: str) -> Line:
    question = f"AL needed to match {rival} ({speed:g} tok/s)"
    return Line(question, r, PAPER.oracle().required(speed, r), "tokens a round", meaning)


def _plain_price(oracle: Oracle) -> list[Line]:
    verify, both = oracle.at_plain_price(), oracle.at_plain_price(draft_steps=1)
    dear = f"{verify / oracle.plain:.2f}× plain decoding, with drafting as dear as measured."
    would = (
        f"{both / oracle.plain:.2f}× plain decoding: the acceptance would pay if the passes ran as"
        " fast as plain steps. An upper bound: wide passes cost more."
    )
    return [
        Line("Verifying at the price of a plain step", 0, verify, "tok/s", dear, digits=3),
        Line("Both passes at the price of a plain step", None, both, "tok/s", would, digits=0),
    ]


def outlook_lines(outlook: Outlook, what: WhatIf = USUAL) -> list[Line]:
    """The oracle of one configuration; speeds are ratios when plain decoding's is not known."""
    oracle, committed, plain = outlook.oracle, outlook.committed, outlook.oracle.plain
    need, need_free = (oracle.required(plain, r) for r in (0, 1))
    free, flat = oracle.throughput(r=1), oracle.at_plain_price(with_other=True)

    def line(question: str, r: float | None, value: float, meaning: str, unit: str = "") -> Line:
        speed, digits = ("tok/s", 1) if outlook.plain != 1.0 else ("×", 2)
        return Line(
            question, r, value, unit or speed, meaning, outlook.config, 2 if unit else digits
        )

    earns = f"A round commits {committed:.2f} tokens and costs {need:.2f} plain steps"
    bound = "the most that cheaper drafting alone can bring"
    if outlook.free:
        bound += " (a bound out of reach: its free first token comes from the draft pass)"
    lines = [
        line("Now", 0, oracle.throughput(), f"{earns}: {outlook.speed:.2f}× plain decoding."),
        line(_MATCH, 0, need, f"Break-even; it has {_distance(committed, need)}.", _TOKENS),
        line("With drafting free", 1, free, f"{free / plain:.2f}× plain decoding: {bound}."),
        line(_MATCH, 1, need_free, f"It has {_distance(committed, need_free)}.", _TOKENS),
        line(
            "Verifying at the price of a plain step",
            0,
            flat,
            f"{flat / plain:.2f}× plain decoding: what a flat cost curve would bring.",
        ),
    ]
    asked = [entry for entry in lines if outlook.cost.draft > 0 or entry.r == 0]
    return asked + ladder_lines(outlook.config, outlook.ladder, what)


_MATCH = "AL needed to match plain decoding"
_TOKENS = "tokens a round"


def ladder_lines(config: str, ladder: Ladder | None, what: WhatIf) -> list[Line]:
    """The best draft length by marginal gain, as things are and under each change."""
    if ladder is None:
        return []
    best, gain = ladder.best, ladder.next_gain
    meaning = worth(best, ladder.survival)
    if best.k and gain is not None:
        meaning += (
            f" One draft more would add {gain:.2f} tokens per plain step, less than the round"
            " makes already."
            if gain < best.speed
            else f" One draft more would add {gain:.2f} tokens per plain step."
        )
    lines = [Line("Best draft length", 0, best.k, "drafts", meaning, config, digits=0)]
    for question, option in variations(ladder, what):
        speed = max(1.0, option.speed)
        lines.append(Line(question, None, speed, "×", worth(option, ladder.survival), config))
    return lines


def _distance(committed: float, needed: float) -> str:
    gap = committed / needed - 1
    return f"{committed:.2f}, {abs(gap):.0%} {'more' if gap >= 0 else 'less'} than needed"


def run_lines(
    folder: Path, config: str | None = None, what: WhatIf = USUAL
) -> tuple[str, list[Line]]:
    """The oracle of each configuration of a run folder (or of the named one)."""
    run = load_run(folder)
    found = outlooks(run, config)
    name = run.verifier.get("name", "the verifier")
    title = f"{run.label}: {name}, plain decoding {found[0].plain:.1f} tok/s"
    return title, [line for outlook in found for line in outlook_lines(outlook, what)]


def hand_lines(outlook: Outlook, what: WhatIf = USUAL) -> tuple[str, list[Line]]:
    """The oracle of figures given by hand."""
    title = "By hand, in units of one plain decoding step"
    if outlook.ladder:
        title += f"; survival {', '.join(f'{s:.3g}' for s in outlook.ladder.survival)}"
    return title, outlook_lines(outlook, what)


def by_hand(
    acceptance: Sequence[float],
    draft: float,
    verify: Sequence[float],
    *,
    other: float = 0.0,
    plain: float = 1.0,
    one_by_one: bool = False,
    conditional: bool = False,
) -> Outlook:
    """An outlook from survival (or conditional rates) and prices in plain steps.

    ``verify`` holds one price for the full draft (shorter drafts: linear down to 1 step) or one
    for each draft length 1 … K. ``draft`` is the price of a round, or of each token when they are
    drafted ``one_by_one``.
    """
    survival = survival_of(acceptance) if conditional else checked_survival(acceptance)
    k = len(survival)
    if len(verify) not in (1, k):
        raise RecipeError(
            f"--verify-cost has {len(verify)} values: give 1, or one for each of the {k} lengths"
        )
    if plain <= 0:
        raise RecipeError(f"--plain {plain:g}: give plain decoding's tokens per second, above 0")
    last = verify[-1]
    prices = verify if len(verify) == k else [1 + (last - 1) * i / k for i in range(1, k + 1)]
    price = sequential(draft) if one_by_one else block(draft)
    ladder = Ladder(survival, price, lambda width: prices[width - 1], other)
    cost = RoundCost(price(k), last, other)
    return Outlook(f"K={k}", k, cost, expected_committed(survival), plain, ladder)
