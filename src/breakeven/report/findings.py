"""What a run's files say in words: the verdict, the audit, the machine's state."""

from __future__ import annotations

from dataclasses import dataclass, field

from breakeven.counting import counted
from breakeven.measure.doubts import DOUBT
from breakeven.report.records import PLAIN, Audit, Verdict
from breakeven.report.run import Run

CLASSES = {
    "equal": ("✓", "the same tokens as plain decoding"),
    "near-tie": ("≈", "differs only where two logits are equal within rounding"),
    "bug": ("✗", "differs where the verifier's choice was clear: the output is wrong"),
    "inconclusive": ("?", "nothing was drafted, so nothing was tested"),
}
"""The audit's verdicts: a sign, and what each means."""


def verdict_of(run: Run) -> Verdict:
    """The run's verdict, or one read off performance.csv when verdict.json is missing.

    A configuration whose audit found a bug is left out: wrong output is not fast output.
    """
    if run.verdict is not None:
        said = {f"{DOUBT}{text}" for text in warnings_of(run)}  # the page has a place for them
        reasons = tuple(r for r in run.verdict.reasons if r not in said)
        return run.verdict.model_copy(update={"reasons": reasons})
    wrong = {audit.config for audit in run.audits if audit.verdict == "bug"}
    right = [config for config in run.configs if config not in wrong]
    rows = [row for config in right if (row := run.speed_of(config)) and row.ratio]
    if not rows:
        return Verdict(verdict="undecided", sentence="Undecided: no ratios were measured.")
    best = max(rows, key=lambda row: row.ratio or 0.0)
    ratio, low, high = best.ratio or 0.0, best.ratio_low, best.ratio_high
    spread = f" (95 % {low:.2f}–{high:.2f})" if low and high else ""
    if low and low > 1:
        word, says = "pays", "It pays"
    elif high and high < 1:
        word, says = "does not pay", "It does not pay, even at its best"
    else:
        word, says = "undecided", "Undecided"
    sentence = f"{says}: {best.config} reaches {ratio:.2f}× plain decoding's speed{spread}."
    return Verdict(verdict=word, sentence=sentence, best=best.config, ratio=ratio,
                   ratio_low=low, ratio_high=high)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """The audits of one run. ``worst`` is the verdict to show first; empty without audits."""

    worst: str
    sentence: str
    short: str
    audits: list[Audit] = field(default_factory=list)

    def of(self, config: str | None) -> str:
        """Whether one configuration (None: all of them) gives the same output, in a word."""
        answers = {"equal": "yes", "bug": "no", "inconclusive": "untested", "": "not audited"}
        found = next((a.verdict for a in self.audits if a.config == config), "")
        word = self.worst if config is None else found
        return answers.get(word, word)


def audit_summary(run: Run) -> AuditSummary:
    """One sentence over all audited configurations.

    The worst class decides: bug, then near-tie, then inconclusive, then equal.
    """
    if not run.audits:
        return AuditSummary("", "Not audited: run `breakeven audit` on this run.", "not audited")
    counts = {word: sum(a.verdict == word for a in run.audits) for word in CLASSES}
    worst = next((word for word in ("bug", "near-tie", "inconclusive") if counts[word]), "equal")
    short = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    total = len(run.audits)
    if worst == "bug":
        names = ", ".join(a.config for a in run.audits if a.verdict == "bug")
        text = f"Wrong output from {names}: its speed means nothing until that is mended."
    elif worst == "equal":
        text = f"All {total} audited configurations gave the same tokens as plain decoding."
    else:
        text = f"{counted(total, 'configuration')} audited: {short}; no wrong output."
    return AuditSummary(worst, text, short, run.audits)


def warnings_of(run: Run) -> list[str]:
    """What makes the figures less sure: the benchmark's own warnings, or the machine's load."""
    stated = run.configuration.get("warnings")
    if isinstance(stated, list):
        return list(dict.fromkeys(str(text) for text in stated))
    return load_warnings(run)


def load_warnings(run: Run) -> list[str]:
    """What about the machine makes the figures less sure."""
    machine, found = run.machine, []
    cores, threads = (_float(machine.get(name)) for name in ("cores", "threads"))
    start, end = (_float(machine.get(name)) for name in ("load_1m_start", "load_1m_end"))
    if start is not None and start > 0.7:
        found.append(
            f"Something else was running when measuring began (load {start:.1f}):"
            " ratios are noisier than on a quiet machine."
        )
    if end is not None and threads is not None and end > threads + 0.7:
        found.append(
            f"The load at the end ({end:.1f}) is above the {threads:.0f} threads that were"
            " measuring: something else took processor time."
        )
    if cores is not None and threads is not None and threads > cores:
        found.append(
            f"{counted(round(threads), 'thread')} on {counted(round(cores), 'core')}: passes "
            "wait for each other."
        )
    if run.speed_of(PLAIN) is None and run.performance:
        found.append("Plain decoding was not measured, so no ratio can be checked.")
    return found


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
