"""Whether the engines say the same, and if not, where they part and why.

The same weights in fp32 give the same greedy tokens except where two are level within rounding:
a *near-tie*. A parting is judged by our verifier's logits at that place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.peers.race import Record
from benchmarks.peers.standings import OURS_PLAIN
from breakeven.measure.divergence import first_difference
from breakeven.measure.rescore import rescore
from breakeven.measure.tolerance import tolerance
from breakeven.verifier.interface import Verifier


@dataclass(frozen=True, slots=True)
class Parting:
    """Where one answer leaves breakeven's plain one; ``gap`` is by how many logits it is worse."""

    entry: str
    round: int
    position: int
    gap: float
    kind: str  # near-tie, ends elsewhere, or other


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many answers of an entry were compared, and where some part."""

    entry: str
    answers: int
    partings: tuple[Parting, ...]


def compare(
    records: Iterable[Record],
    prompts: Sequence[Sequence[int]],
    verifier: Verifier,
    eos: frozenset[int],
) -> list[Agreement]:
    """Every entry's single answers against those of breakeven's plain decoding."""
    single = [record for record in records if record.kind == "decode"]
    expected = {r.round: _body(r.outputs[0], eos) for r in single if r.entry == OURS_PLAIN}
    found = []
    for entry in sorted({r.entry for r in single} - {OURS_PLAIN}):
        answers = [r for r in single if r.entry == entry and r.round in expected]
        partings = [
            _parting(r, expected[r.round], _body(r.outputs[0], eos), prompts[r.round], verifier)
            for r in answers
        ]
        found.append(Agreement(entry, len(answers), tuple(p for p in partings if p is not None)))
    return found


def _body(tokens: Sequence[int], eos: frozenset[int]) -> tuple[int, ...]:
    """Without the end-of-sequence id, which some engines leave out."""
    return tuple(tokens[:-1] if tokens and tokens[-1] in eos else tokens)


def _parting(
    record: Record,
    expected: tuple[int, ...],
    got: tuple[int, ...],
    prompt: Sequence[int],
    verifier: Verifier,
) -> Parting | None:
    position = first_difference(expected, got)
    if position is None:
        return None
    if position in (len(expected), len(got)):
        return Parting(record.entry, record.round, position, 0.0, "ends elsewhere")
    scores = rescore(verifier, prompt, got[: position + 1])
    gap = scores.gap[position]
    near = gap <= tolerance(verifier.dtype, scores.top[position])
    return Parting(record.entry, record.round, position, gap, "near-tie" if near else "other")


def agreements(found: Iterable[Agreement]) -> Table:
    """A line for each entry."""
    table = Table("engine", "answers equal", "first partings (token, gap in logits)")
    table.title = f"the same tokens as {OURS_PLAIN}?"
    for one in found:
        words = [
            f"prompt {p.round}: token {p.position}, {p.gap:.1e}, {p.kind}" for p in one.partings[:3]
        ]
        equal = one.answers - len(one.partings)
        table.add_row(one.entry, f"{equal} of {one.answers}", "\n".join(words))
    return table
