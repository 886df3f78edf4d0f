"""The exactness audit: is the output the verifier's own, and if not, why not?

Levels, each with all below it:

- L0: the tokens of every answer are compared with plain decoding's;
- L1: plain decoding padded to the verify width shows what the kernels alone change;
- L2: every emitted token is re-scored in one plain pass and must be the best or level with it.

Beside them stand the trajectories (ALGORITHMS 7.6, L3): how many answers are plain decoding's to
the end, where the others part, and how many padding alone would have left whole, the ceiling.

Wherever an output leaves plain decoding's, the gap in logits decides between *near-tie* and
*bug*. A run in which nothing was drafted proves nothing: *inconclusive*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import chain
from statistics import median
from typing import Any, Protocol

import numpy as np

from breakeven.measure.control import Control
from breakeven.measure.divergence import Divergence, Kind, Output, departures, parting
from breakeven.measure.rescore import Rescorer, Scores
from breakeven.measure.tolerance import tolerance

MARGIN_EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
LISTED = 50


class Level(StrEnum):
    """How deep an audit goes."""

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"


class Finding(StrEnum):
    """What an audit says of one configuration."""

    EQUAL = "equal"
    NEAR_TIE = "near-tie"
    INCONCLUSIVE = "inconclusive"
    BUG = "bug"


EXIT_CODES = {Finding.EQUAL: 0, Finding.NEAR_TIE: 0, Finding.INCONCLUSIVE: 2, Finding.BUG: 1}


class Audited(Protocol):
    """What the verdict and its words need of an audit, fresh or read from ``audit.json``."""

    @property
    def config(self) -> str:
        """The configuration's name."""

    @property
    def verdict(self) -> Finding:
        """The worst of what was found."""

    @property
    def outputs(self) -> Sized:
        """The answers, counted."""

    @property
    def differing(self) -> int:
        """Answers that are not plain decoding's."""

    @property
    def tokens(self) -> int:
        """Tokens emitted in all."""

    @property
    def divergences(self) -> Sequence[Divergence]:
        """Where answers leave plain decoding's."""

    @property
    def bugs(self) -> Sequence[Divergence]:
        """Those that rounding does not explain."""

    @property
    def control(self) -> Control | None:
        """What the kernels alone change."""


@dataclass(frozen=True, slots=True)
class Trajectories:
    """``whole`` of ``requests`` answers are plain decoding's; the others part at ``parting``.

    ``parting`` is the median first position that diverges, None where none does; ``ceiling`` how
    many answers of plain decoding stay whole when its passes are padded, None without a control.
    """

    whole: int
    requests: int
    parting: float | None
    ceiling: int | None

    def line(self) -> str:
        """For people.

        >>> Trajectories(7, 8, 31, 8).line()
        'trajectories: 7 of 8 answers are whole, the others part at token 31; padding alone: 8 of 8'
        """
        words = f"trajectories: {self.whole} of {self.requests} answers are whole"
        if self.parting is not None:
            words += f", the others part at token {self.parting:g}"
        if self.ceiling is not None:
            words += f"; padding alone: {self.ceiling} of {self.requests}"
        return words


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of one configuration; ``margins`` are counts over :data:`MARGIN_EDGES`."""

    config: str
    level: Level
    outputs: Mapping[str, Output]
    differing: int
    divergences: tuple[Divergence, ...]
    margins: tuple[int, ...] | None
    control: Control | None

    @property
    def drafted(self) -> int:
        """Tokens drafted in all."""
        return sum(output.drafted for output in self.outputs.values())

    @property
    def accepted(self) -> int:
        """Drafted tokens accepted in all."""
        return sum(output.accepted for output in self.outputs.values())

    @property
    def tokens(self) -> int:
        """Tokens emitted in all."""
        return sum(len(output.tokens) for output in self.outputs.values())

    @property
    def bugs(self) -> tuple[Divergence, ...]:
        """The divergences that rounding does not explain."""
        return tuple(d for d in self.divergences if d.kind is Kind.BUG)

    @property
    def verdict(self) -> Finding:
        """The worst of what was found."""
        if self.bugs or (self.control is not None and not self.control.sound):
            return Finding.BUG
        if not self.drafted:
            return Finding.INCONCLUSIVE
        return Finding.NEAR_TIE if self.divergences else Finding.EQUAL

    @property
    def trajectories(self) -> Trajectories:
        """Whole answers beside what the kernels alone would have left whole."""
        first: dict[str, int] = {}
        for d in self.divergences:
            first[d.id] = min(d.position, first.get(d.id, d.position))
        ceiling = None
        if self.control is not None:
            ceiling = self.control.requests - len({flip[0] for flip in self.control.flips})
        whole = len(self.outputs) - self.differing
        return Trajectories(whole, len(self.outputs), median(first.values()) if first else None,
                            ceiling)  # fmt: skip

    def row(self, tokenizer: Any = None) -> dict[str, Any]:
        """The entry in ``audit.json``; bugs are listed first, at most :data:`LISTED` in all."""
        listed = sorted(self.divergences, key=lambda d: (d.kind is not Kind.BUG, d.id, d.position))
        return {
            "config": self.config,
            "level": str(self.level),
            "verdict": str(self.verdict),
            "requests": len(self.outputs),
            "differing": self.differing,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "divergences": [d.row(self.outputs[d.id], tokenizer) for d in listed[:LISTED]],
            "margins": None
            if self.margins is None
            else {"edges": list(MARGIN_EDGES), "counts": list(self.margins)},
            "trajectories": asdict(self.trajectories),
            "control": self.control.row() if self.control else None,
        }


def judge(
    config: str,
    plain: Mapping[str, Output],
    own: Mapping[str, Output],
    rescorer: Rescorer,
    *,
    level: Level = Level.L2,
    control: Control | None = None,
) -> Audit:
    """Compare a configuration's outputs with plain decoding's (both by request id)."""
    noise = control.noise if control else 0.0
    found: list[Divergence] = []
    margins: list[float] = []
    differing = 0
    for name, output in own.items():
        reference = plain[name]
        differs = (output.tokens, output.finish) != (reference.tokens, reference.finish)
        differing += differs
        if not differs and level is not Level.L2:
            continue
        scores = rescorer(output.prompt, output.tokens)
        plain_scores = rescorer(reference.prompt, reference.tokens)
        bound = bounds(rescorer, scores, noise)
        first = parting(reference, output, plain_scores, scores, bound)
        rest = departures(output, scores, bound) if level is Level.L2 else ()
        found += _once(chain((first,) if first else (), rest))
        margins += scores.margin
    counts = histogram(margins) if level is Level.L2 else None
    return Audit(config, level, own, differing, tuple(found), counts, control)


def bounds(rescorer: Rescorer, scores: Scores, noise: float) -> list[float]:
    """The near-tie bound at every position of an output."""
    return [tolerance(rescorer.verifier.dtype, top, noise) for top in scores.top]


def histogram(margins: Sequence[float]) -> tuple[int, ...]:
    """How many margins between the best two tokens fall between :data:`MARGIN_EDGES`."""
    clipped = np.clip(np.asarray(margins), MARGIN_EDGES[0], MARGIN_EDGES[-1])
    return tuple(int(count) for count in np.histogram(clipped, MARGIN_EDGES)[0])


def exit_code(audits: Iterable[Audit]) -> int:
    """0 when all are equal or near-ties, 1 with a bug, else 2 with an inconclusive one."""
    findings = {audit.verdict for audit in audits}
    worst = next((f for f in (Finding.BUG, Finding.INCONCLUSIVE) if f in findings), Finding.EQUAL)
    return EXIT_CODES[worst]


def _once(divergences: Iterable[Divergence]) -> Iterable[Divergence]:
    """The first divergence at each position of one output."""
    return {d.position: d for d in reversed(list(divergences))}.values()
