"""Drafters that know the answer, for tests and for synthetic acceptance.

They are given each request's true continuation and are right or wrong on purpose: the tests'
best tools. The prompt of a request finds its script.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from breakeven.core import Draft
from breakeven.drafters.base import Boarding, Context, Drafter
from breakeven.drafters.wrapper import Counterfeit
from breakeven.verifier.rows import Rows

GOLDEN = (5**0.5 - 1) / 2
"""A step whose multiples, taken modulo 1, fill 0–1 evenly (Kronecker's sequence)."""

Script = Mapping[tuple[int, ...], Sequence[int]]


class Scripted(Drafter):
    """Base: finds what plain decoding will say next.

    ``script`` maps each prompt to its plain continuation.
    """

    name = "scripted"

    def __init__(self, script: Script, vocab_size: int) -> None:
        self._script, self._vocab_size = script, vocab_size

    def propose(self, context: Context, k: int) -> list[Draft]:
        """What the subclass makes of the next ``k`` true tokens."""
        return [Draft(tuple(self.bend(self._next(tokens, k)))) for tokens in context.tokens]

    def bend(self, truth: list[int]) -> list[int]:
        """The draft, given the true tokens."""
        raise NotImplementedError

    def wrong(self, token: int) -> int:
        """Another token than this one."""
        return (token + 1) % self._vocab_size

    def _next(self, tokens: list[int], k: int) -> list[int]:
        for prompt, continuation in self._script.items():
            size = len(prompt)
            made = tokens[size:]
            if tuple(tokens[:size]) == prompt and list(continuation[: len(made)]) == made:
                future = list(continuation[len(made) : len(made) + k])
                return future + [0] * (k - len(future))
        return [0] * k


class Oracle(Scripted):
    """Always right: every draft is accepted."""

    name = "oracle"

    def bend(self, truth: list[int]) -> list[int]:
        """The truth."""
        return truth


class AntiOracle(Scripted):
    """Always wrong: no draft is accepted."""

    name = "anti-oracle"

    def bend(self, truth: list[int]) -> list[int]:
        """Wrong everywhere."""
        return [self.wrong(t) for t in truth]


class FlipAt(Scripted):
    """Right until position ``j`` (0-based), wrong there, right again after it."""

    name = "flip-at"

    def __init__(self, script: Script, vocab_size: int, j: int) -> None:
        super().__init__(script, vocab_size)
        self._j = j

    def bend(self, truth: list[int]) -> list[int]:
        """One wrong token."""
        return [self.wrong(t) if i == self._j else t for i, t in enumerate(truth)]


class Short(Oracle):
    """Right, but proposes at most ``limit`` tokens, often none; the limit cycles 0..``limit``."""

    name = "short"

    def __init__(self, script: Script, vocab_size: int, limit: int = 2) -> None:
        super().__init__(script, vocab_size)
        self._limit, self._turn = limit, 0

    def bend(self, truth: list[int]) -> list[int]:
        """The first tokens only."""
        self._turn += 1
        return truth[: self._turn % (self._limit + 1)]


class Synthetic(Scripted):
    """Right with given conditional probabilities: a knob that sets acceptance.

    ``rates[i]`` is the probability that draft i is right given that all before it were; the last
    one goes on. Each draft uses one number u of a sequence that fills 0–1 evenly from a seeded
    start, and is right while the survival exceeds u: the shares come out as asked with few rounds.
    """

    name = "synthetic"

    def __init__(
        self, script: Script, vocab_size: int, rates: Sequence[float], seed: int = 0
    ) -> None:
        super().__init__(script, vocab_size)
        self._rates, self._u = rates, random.Random(seed).random()

    def bend(self, truth: list[int]) -> list[int]:
        """Right as far as this round's number allows, wrong from there on."""
        self._u = (self._u + GOLDEN) % 1.0
        draft, survival = [], 1.0
        for i, token in enumerate(truth):
            survival *= self._rates[min(i, len(self._rates) - 1)]
            draft.append(token if self._u < survival else self.wrong(token))
        return draft


class Dressed(Counterfeit):
    """Another drafter's work with a script's tokens: its price, at a chosen acceptance.

    A free first token stays the verifier's own. Looked-up drafts get any length; others are as
    long as the worker's, which may have none this time.
    """

    def __init__(self, worker: Drafter, script: Scripted) -> None:
        super().__init__(worker)
        self.name, self._script = f"{worker.name} with {script.name} tokens", script

    def propose(self, context: Context, k: int) -> list[Draft]:
        """The worker drafts, the script says what."""
        scripted = self._script.propose(context, k)
        if self.aboard == "states":
            self.inner.draft_along(context, scripted)
            return scripted
        drafts = self.inner.propose(context, k)
        if self.inner.looks_up:
            return scripted
        return [
            Draft((*d.tokens[: d.free], *s.tokens[d.free : len(d.tokens)]), d.free)
            for d, s in zip(drafts, scripted, strict=True)
        ]

    def board(self, context: Context, rows: Rows) -> Boarding:
        """States are those of the script's tokens, so they may ride as well."""
        return self.inner.board(context, rows)


class RandomDrafter(Drafter):
    """Tokens drawn uniformly; the script is not consulted."""

    name = "random"

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._vocab_size, self._random = vocab_size, random.Random(seed)

    def propose(self, context: Context, k: int) -> list[Draft]:
        """``k`` random tokens each."""
        return [
            Draft(tuple(self._random.randrange(self._vocab_size) for _ in range(k)))
            for _ in context.tokens
        ]
