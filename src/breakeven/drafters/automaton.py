"""A suffix automaton with counts: every substring of a growing text, how often, and what followed.

States are classes of substrings that end at the same places; a text of n tokens has at most 2n of
them (Blumer et al. 1985). Adding a token takes amortised constant time, and a token more for each
shorter class whose count it raises.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOT = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The longest end of a text that an automaton knows: its state and its length in tokens."""

    state: int = ROOT
    length: int = 0


class SuffixAutomaton:
    """All substrings of a text that grows token by token.

    >>> automaton = SuffixAutomaton()
    >>> for token in (1, 2, 3, 1, 2, 4, 1, 2, 3, 9, 1, 2):
    ...     automaton.add(token)
    >>> automaton.repeated().length     # 1 2 stood there before
    2
    >>> tokens, shares = automaton.follow(automaton.repeated(), 2, least=0.1)
    >>> tokens[0], round(shares[0], 2)  # 3 followed in two cases of three
    (3, 0.67)
    """

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._count = [0]  # occurrences of the state's substrings
        self._last = ROOT

    def __len__(self) -> int:
        """Number of states: what bounds memory (each a dictionary and three numbers)."""
        return len(self._next)

    def add(self, token: int) -> None:
        """Append one token."""
        new = self._state(self._length[self._last] + 1, {})
        state = self._last
        while state != -1 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state == -1:
            self._link[new] = ROOT
        else:
            self._link[new] = self._shortened(state, token)
        self._last = new
        while new != ROOT:
            self._count[new] += 1
            new = self._link[new]

    def _shortened(self, state: int, token: int) -> int:
        """The class of the end that ``state`` followed by ``token`` is, split off where need be."""
        target = self._next[state][token]
        if self._length[target] == self._length[state] + 1:
            return target
        clone = self._state(self._length[state] + 1, dict(self._next[target]))
        self._link[clone], self._count[clone] = self._link[target], self._count[target]
        self._link[target] = clone
        while state != -1 and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _state(self, length: int, following: dict[int, int]) -> int:
        self._next.append(following)
        self._link.append(-1)
        self._length.append(length)
        self._count.append(0)
        return len(self._next) - 1

    def repeated(self) -> Match:
        """The longest end of the text that stands in it earlier as well."""
        state = self._link[self._last]
        return Match() if state <= ROOT else Match(state, self._length[state])

    def step(self, match: Match, token: int) -> Match:
        """The match of another text's end after one more of its tokens."""
        match = self.settled(match)
        state, length = match.state, match.length
        while state != ROOT and token not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        target = self._next[state].get(token)
        return Match() if target is None else Match(target, length + 1)

    def settled(self, match: Match) -> Match:
        """The same substring in its present class: a class may have been split since."""
        state = match.state
        while state != ROOT and match.length <= self._length[self._link[state]]:
            state = self._link[state]
        return Match(state, match.length)

    def follow(self, match: Match, k: int, *, least: float) -> tuple[list[int], list[float]]:
        """The likeliest ``k`` tokens after a match, and each one's share of what followed there.

        It ends early where the product of the shares falls below ``least``, and at a mark (a
        negative token). Of equals the one that was seen first is taken.
        """
        tokens: list[int] = []
        shares: list[float] = []
        state, product = match.state, 1.0
        while len(tokens) < k:
            best = self._likeliest(state)
            if best is None:
                break
            token, share = best
            product *= share
            if product < least or token < 0:
                break
            tokens.append(token)
            shares.append(share)
            state = self._next[state][token]
        return tokens, shares

    def _likeliest(self, state: int) -> tuple[int, float] | None:
        """The most frequent next token among all that followed the state's substrings."""
        following, count = self._next[state], self._count
        if not following:
            return None
        token = max(following, key=lambda t: count[following[t]])
        return token, count[following[token]] / sum(count[child] for child in following.values())
