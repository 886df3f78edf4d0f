"""What a speed is made of: an algorithm's part and an implementation's part.

A same-backbone drafter of two passes a round is

    speed / plain speed  =  A / price  =  (A / 2)  ×  (2 / price)

with A the tokens committed a round and ``price`` the round in plain steps (c_d + c_v + c_s). The
first factor is what the *algorithm* is worth where each of its two passes costs one plain step:
the oracle "verify at plain-step price". The second is what the *implementation* and the machine
make of it: 1 when a pass of 17 rows costs no more than a step, less when passes are dear.

>>> paper = PAPER_SPLIT
>>> round(paper.ratio, 4), round(paper.algorithm, 2), round(paper.implementation, 3)
(0.0789, 1.44, 0.055)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from breakeven.cost.oracle import PAPER, Oracle, RoundTime
from breakeven.errors import BreakevenError

PASSES = 2


@dataclass(frozen=True, slots=True)
class Split:
    """One measured configuration: tokens a round and its price in plain steps."""

    committed: float
    price: float

    @property
    def algorithm(self) -> float:
        """Speed over plain decoding with each pass at the price of a plain step."""
        return self.committed / PASSES

    @property
    def implementation(self) -> float:
        """What the passes' real price leaves of it."""
        return PASSES / self.price

    @property
    def ratio(self) -> float:
        """Measured speed over plain decoding's."""
        return self.committed / self.price

    @property
    def verdict(self) -> str:
        """Which part decides.

        >>> Split(2.4, 4.0).verdict
        'implementation'
        >>> Split(1.5, 2.0).verdict
        'algorithm'
        """
        if self.ratio > 1:
            return "it pays"
        return "implementation" if self.algorithm > 1 else "algorithm"


PAPER_SPLIT = Split(PAPER.peft_bd_committed, PAPER.round_s * PAPER.plain)
"""The paper's own PEFT-BD."""


def split_of(row: Mapping[str, Any]) -> Split:
    """From a configuration's figures."""
    seconds = row["draft_s"] + row["verify_s"] + row["other_s"]
    return Split(row["committed"], seconds / row["step_s"])


def oracle_of(row: Mapping[str, Any]) -> Oracle | None:
    """The paper's oracle with our measured round; None where nothing was decoded."""
    try:
        time = RoundTime(row["draft_s"], row["verify_s"], row["other_s"])
        return Oracle(row["committed"], time, 1 / row["step_s"])
    except (BreakevenError, ZeroDivisionError, TypeError):
        return None


def sentences(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Our reading, computed from the figures of the stages that were run."""
    found = [_paper()]
    bench, loop = results.get("bench"), results.get("loop")
    if bench and (row := row_of(bench, "peft-bd")):
        found.append(_here(split_of(row)))
    if loop:
        found += _paths(loop)
    if ablations := results.get("ablations"):
        found += _denoising(ablations)
    return found


def row_of(result: Mapping[str, Any], config: str) -> Mapping[str, Any] | None:
    """The figures of one configuration."""
    return next((row for row in result["figures"] if row["config"] == config), None)


def _paper() -> str:
    s = PAPER_SPLIT
    return (
        f"In the paper PEFT-BD runs at {s.ratio:.3f} of plain decoding's speed. Its "
        f"{s.committed:.3f} tokens for two passes would be {s.algorithm:.2f} times plain decoding "
        "if a pass cost one plain step (the algorithm); its passes cost "
        f"{s.price / PASSES:.1f} plain steps each, which leaves {s.implementation:.3f} of that "
        f"(the implementation). The loss is implementation's."
    )


def _here(s: Split) -> str:
    verdict = {
        "it pays": "Here it pays.",
        "implementation": "The algorithm alone would pay; the price of its passes loses it.",
        "algorithm": "Even at plain-step prices it would lose: the drafts accepted are too few for "
        "two passes of the same backbone.",
    }[s.verdict]
    return (
        f"Here PEFT-BD runs at {s.ratio:.2f} of plain decoding's speed: {s.committed:.2f} tokens "
        f"for two passes are worth {s.algorithm:.2f} at plain-step price, and a round costs "
        f"{s.price:.2f} plain steps instead of {PASSES}, which leaves {s.implementation:.2f} of "
        "it. "
        f"{verdict}"
    )


def _paths(loop: Mapping[str, Any]) -> list[str]:
    found = []
    for name, agreed in loop["agreement"].items():
        rows = [row_of(loop["paths"][path], name) for path in ("loop", "engine")]
        if None in rows:
            continue
        slow, fast = (row for row in rows if row is not None)
        times = [1e3 * (r["draft_s"] + r["verify_s"] + r["other_s"]) for r in (slow, fast)]
        same = agreed["same"] == agreed["prompts"]
        others = "" if same else " (elsewhere a near-tie in a draft or an answer parted them)"
        parts = ", ".join(
            f"{word} {1e3 * (slow[key] - fast[key]):+.1f} ms"
            for word, key in (("draft", "draft_s"), ("verify", "verify_s"), ("rest", "other_s"))
        )
        found.append(
            f"Loop and engine went through the same rounds of {name} on {agreed['same']} of "
            f"{agreed['prompts']} prompts{others}; a round takes "
            f"{times[0]:.1f} ms in the loop and {times[1]:.1f} ms in the engine ({parts}), a plain "
            f"step {1e3 * slow['step_s']:.1f} and {1e3 * fast['step_s']:.1f} ms. The algorithm is "
            "the same, so that difference is implementation."
        )
    return found


def _denoising(result: Mapping[str, Any]) -> list[str]:
    one, right, wrong = (
        row_of(result, name) for name in ("one-step", "two-steps", "two-steps-refilled")
    )
    if not (one and right and wrong):
        return []
    return [
        f"Two denoising steps commit {right['committed']:.3f} tokens a round where filled tokens "
        f"stay, {wrong['committed']:.3f} where all are predicted anew, one step "
        f"{one['committed']:.3f}; the paper's two steps commit {PAPER.two_step_committed}."
    ]
