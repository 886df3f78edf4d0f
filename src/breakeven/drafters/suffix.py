"""Suffix decoding: continue as this text, or an earlier answer, most often did (2411.04975).

Two suffix automata are kept: one of the request's own tokens, one of the answers this process has
given before. The longest end of the text found in each is continued by the most frequent next
tokens, while the product of their shares stays above ``least``; a draft is at most ``factor``
times as long as its match. The better of the two, by the sum of the products (the tokens it can
expect to have accepted if shares were probabilities), is proposed (ALGORITHMS 6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from torch import Tensor

from breakeven.core import Draft
from breakeven.drafters.automaton import Match, SuffixAutomaton
from breakeven.drafters.base import Context, LookupDrafter
from breakeven.errors import DrafterError

LONGEST_DRAFT = 1000
"""A draft is at most so many times as long as its match, whatever ``factor`` is asked for."""


@dataclass(slots=True)
class _Place:
    """One request: its own automaton, and where its end stands in the shared one."""

    own: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    shared: Match = field(default_factory=Match)
    read: int = 0
    prompt: int = 0


class Suffix(LookupDrafter):
    """Drafts by counts of what followed the longest match, here and in earlier answers."""

    name = "suffix"

    def __init__(
        self, factor: float = 2.0, least: float = 0.1, shared_states: int = 200_000
    ) -> None:
        """``shared_states`` bounds what is remembered of earlier answers (about 0.3 kB each)."""
        if not 0 < factor <= LONGEST_DRAFT or not 0 <= least <= 1 or shared_states < 1:
            raise DrafterError(
                f"suffix: factor {factor}, least {least}, shared_states {shared_states}: give a "
                f"factor above 0, at most {LONGEST_DRAFT}, least from 0 to 1, and 1 "
                "shared state at least"
            )
        self._factor, self._least, self._limit = factor, least, shared_states
        self._shared = SuffixAutomaton()
        self._recent: list[list[int]] = []  # the answers in it since it was last half-forgotten
        self._places: list[_Place] = []

    def reserve(self, batch: int, capacity: int) -> None:
        """Empty places; earlier answers stay."""
        self._places = [_Place() for _ in range(batch)]

    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """Read the new prompts."""
        for slot in range(start, context.batch):
            self._places[slot] = _Place(prompt=len(context.tokens[slot]) - 1)

    def glimpse(self, context: Context, k: int) -> list[Draft]:
        """Up to ``k`` tokens from the better of the two automata."""
        return [
            self._draft(place, tokens, k)
            for place, tokens in zip(self._places, context.tokens, strict=False)
        ]

    def _draft(self, place: _Place, tokens: list[int], k: int) -> Draft:
        for token in tokens[place.read :]:
            place.own.add(token)
            place.shared = self._shared.step(place.shared, token)
        place.read = len(tokens)
        place.shared = self._shared.settled(place.shared)
        pairs = ((place.own, place.own.repeated()), (self._shared, place.shared))
        drafts = [self._continued(automaton, match, k) for automaton, match in pairs]
        return max(drafts, key=lambda d: sum(accumulate(d.confidences, mul)))

    def _continued(self, automaton: SuffixAutomaton, match: Match, k: int) -> Draft:
        if match.length == 0:
            return Draft((), match=0)
        longest = min(k, max(1, int(self._factor * match.length)))
        tokens, shares = automaton.follow(match, longest, least=self._least)
        return Draft(tuple(tokens), confidences=tuple(shares), match=match.length)

    def end(self, context: Context, slot: int) -> None:
        """Remember the answer; when too much is remembered, the older half is forgotten."""
        place, tokens = self._places[slot], context.tokens[slot]
        answer = tokens[place.prompt :]
        self._recent.append(answer)
        self._remember(answer, -len(self._recent))
        if len(self._shared) > self._limit:
            self._halve()

    def _remember(self, answer: list[int], mark: int) -> None:
        """Append an answer and a token of no vocabulary, so that no match runs across its end."""
        for token in answer:
            self._shared.add(token)
        self._shared.add(mark)

    def _halve(self) -> None:
        """Build the shared automaton anew from the latest answers, up to half the states."""
        kept: list[list[int]] = []
        size = 0
        for answer in reversed(self._recent):
            size += 2 * (len(answer) + 1)
            if size > self._limit // 2:
                break
            kept.append(answer)
        self._recent, self._shared = kept[::-1], SuffixAutomaton()
        for number, answer in enumerate(self._recent, start=1):
            self._remember(answer, -number)
        for place in self._places:
            place.shared = Match()

    def forget(self) -> None:
        """Forget all earlier answers."""
        self._recent.clear()
        self._halve()

    def move(self, source: int, target: int) -> None:
        """The place goes with the request."""
        self._places[target] = self._places[source]
