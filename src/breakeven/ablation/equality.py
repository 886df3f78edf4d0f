"""Every variant's output must be plain decoding's: a drafter decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.ablation.trials import Trials
from breakeven.counting import counted
from breakeven.measure.audit import Audit, Finding, Level, judge
from breakeven.measure.inspection import of_record
from breakeven.measure.prompts import Prompt
from breakeven.measure.rescore import Rescorer


@dataclass(frozen=True, slots=True)
class Equality:
    """One variant's answers of all seeds beside plain decoding's."""

    verdict: Finding
    answers: int
    differing: int

    @classmethod
    def of(cls, audits: Sequence[Audit]) -> Equality:
        """From the audits of the seeds: the worst verdict counts."""
        verdicts = [audit.verdict for audit in audits]
        order = (Finding.BUG, Finding.INCONCLUSIVE, Finding.NEAR_TIE, Finding.EQUAL)
        return cls(
            verdict=next(v for v in order if v in verdicts),
            answers=sum(len(audit.outputs) for audit in audits),
            differing=sum(audit.differing for audit in audits),
        )

    @property
    def shown(self) -> str:
        """For the table: the verdict, and how many answers differ where some do.

        >>> Equality(Finding.NEAR_TIE, 48, 1).shown, Equality(Finding.EQUAL, 48, 0).shown
        ('near-tie (1 of 48)', 'equal')
        """
        if not self.differing:
            return str(self.verdict)
        return f"{self.verdict} ({self.differing} of {self.answers})"

    def row(self) -> dict[str, Any]:
        """The entry in ``ablation.json``."""
        return {
            "verdict": str(self.verdict),
            "answers": self.answers,
            "differing": self.differing,
        }


def compare(
    name: str, trials: Mapping[int, Trials], prompts: Sequence[Prompt], rescorer: Rescorer
) -> Equality:
    """Compare every answer with plain decoding's; where they part, the logits tell why."""
    by_id = {prompt.id: prompt for prompt in prompts}
    audits = []
    for by_prompt in trials.values():
        plain = {id: of_record(by_id[id], pair[0]) for id, pair in by_prompt.items()}
        own = {id: of_record(by_id[id], pair[1]) for id, pair in by_prompt.items()}
        audits.append(judge(name, plain, own, rescorer, level=Level.L0))
    return Equality.of(audits)


def verdict_line(found: Mapping[str, Equality]) -> str:
    """One sentence about all variants.

    >>> verdict_line({"a": Equality(Finding.EQUAL, 8, 0), "b": Equality(Finding.BUG, 8, 2)})
    "output: NOT plain decoding's for b; its numbers are void"
    >>> verdict_line({"a": Equality(Finding.EQUAL, 8, 0)})
    "output: plain decoding's, in 8 answers of 1 variant"
    """
    bugs = [name for name, equality in found.items() if equality.verdict is Finding.BUG]
    if bugs:
        owner = "its" if len(bugs) == 1 else "their"
        return f"output: NOT plain decoding's for {', '.join(bugs)}; {owner} numbers are void"
    answers = sum(equality.answers for equality in found.values())
    ties = sum(equality.differing for equality in found.values())
    scale = f"{counted(answers, 'answer')} of {counted(len(found), 'variant')}"
    line = f"output: plain decoding's, in {scale}"
    silent = [n for n, equality in found.items() if equality.verdict is Finding.INCONCLUSIVE]
    line += f", {ties} of them after a near-tie" if ties else ""
    return line + (f"; nothing was drafted by {', '.join(silent)}" if silent else "")
