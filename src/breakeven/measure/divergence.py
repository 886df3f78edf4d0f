"""Where a speculative output leaves plain decoding, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from breakeven.measure.rescore import Scores

CONTEXT_TOKENS = 8


class Kind(StrEnum):
    """What a divergence is."""

    NEAR_TIE = "near-tie"  # two tokens level within rounding: either is the verifier's choice
    BUG = "bug"  # a token the verifier would not have said, or a wrong end


@dataclass(frozen=True, slots=True)
class Output:
    """One answer: the new tokens, why it ended, and how many drafts it took."""

    id: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    finish: str
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Divergence:
    """One token that is not the expected one.

    ``position`` counts new tokens from 0. ``gap`` is by how many logits the worse of the two
    tokens lies below the best; None where one output simply ends.
    """

    id: str
    position: int
    expected: int | None
    got: int | None
    gap: float | None
    kind: Kind

    def row(self, output: Output, tokenizer: Any = None) -> dict[str, Any]:
        """The entry in ``audit.json``, with texts when there is a tokenizer."""
        entry: dict[str, Any] = {
            "id": self.id,
            "position": self.position,
            "expected": self.expected,
            "got": self.got,
            "gap": self.gap,
            "class": str(self.kind),
        }
        if tokenizer is not None:
            before = [*output.prompt, *output.tokens[: self.position]][-CONTEXT_TOKENS:]
            entry["context"] = tokenizer.decode(before)
            for side, token in (("expected", self.expected), ("got", self.got)):
                entry[f"{side}_text"] = None if token is None else tokenizer.decode([token])
        return entry


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first position at which two outputs differ; None when they are equal.

    >>> first_difference([1, 2, 3], [1, 9, 3]), first_difference([1], [1, 2])
    (1, 1)
    """
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def parting(
    plain: Output, own: Output, plain_scores: Scores, own_scores: Scores, bound: Sequence[float]
) -> Divergence | None:
    """The place where ``own`` leaves plain decoding.

    Both tokens must be within ``bound`` (per position of ``own``) of the best for a near-tie:
    plain decoding can be at fault as well. An output that ends elsewhere after the same tokens
    is a bug, because the end depends on the tokens only.
    """
    position = first_difference(plain.tokens, own.tokens)
    if position is None:
        if plain.finish == own.finish:
            return None
        return Divergence(own.id, len(own.tokens), None, None, None, Kind.BUG)
    if position in (len(plain.tokens), len(own.tokens)):
        expected, got = (dict(enumerate(o.tokens)).get(position) for o in (plain, own))
        return Divergence(own.id, position, expected, got, None, Kind.BUG)
    gap = max(plain_scores.gap[position], own_scores.gap[position])
    kind = Kind.NEAR_TIE if gap <= bound[position] else Kind.BUG
    return Divergence(own.id, position, plain.tokens[position], own.tokens[position], gap, kind)


def departures(own: Output, scores: Scores, bound: Sequence[float]) -> Iterator[Divergence]:
    """Every emitted token that is not the verifier's choice when the output is re-scored."""
    for position, (token, best) in enumerate(zip(own.tokens, scores.best, strict=True)):
        if token != best:
            gap = scores.gap[position]
            kind = Kind.NEAR_TIE if gap <= bound[position] else Kind.BUG
            yield Divergence(own.id, position, best, token, gap, kind)
