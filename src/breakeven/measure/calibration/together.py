"""Answers that grow side by side, a round at a time: whatever slows the machine slows all alike."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from breakeven.core import Phase, Round
from breakeven.cost.ledger import Ledger
from breakeven.decode.batch import Batch
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Completion, Request
from breakeven.measure.trial import Method
from breakeven.verifier.interface import Verifier

FEWEST, MOST = 2, 8
"""Repeats, whatever the time allows."""
WARM_TOKENS = 12


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: seconds after the verifier's prefill, and its rounds."""

    seconds: float
    rounds: Sequence[Round]


Answers = Mapping[str, Sequence[Answered]]
"""By method, one for each repeat."""


@dataclass(slots=True)
class Answering:
    """One answer on its way; between two of its rounds others may have theirs."""

    method: Method
    running: Batch
    ledger: Ledger
    done: list[Completion] = field(default_factory=list)

    @classmethod
    def begin(
        cls, verifier: Verifier, method: Method, prompt: tuple[int, ...], tokens: int
    ) -> Answering:
        """Prefill, and what the drafter does with the prompt."""
        if method.drafter is not None:
            method.drafter.forget()
        waiting = deque([Request(method.name, prompt, tokens)])
        ledger = Ledger()
        running = Batch(verifier, waiting, method.drafter, Fixed(method.k), 1, None, ledger)
        with ledger.open():
            running.admit(waiting)
        return cls(method, running, ledger)

    def step(self) -> None:
        """One round, or one plain step."""
        with self.ledger.open():
            self.running.step()
            self.done += self.running.retire()

    @property
    def made(self) -> int:
        """Tokens that are there, without the first."""
        return self.ledger.committed or self.ledger.count(Phase.PLAIN)

    @property
    def answered(self) -> Answered:
        """The whole answer; the verifier's prefill is no part of its time."""
        [completion] = self.done
        return Answered(self.ledger.wall_s - self.ledger.passes[0].seconds, completion.rounds)


class SideBySide:
    """One prompt, answered with every method at once, as often as fits in ``seconds``.

    Creating it decodes a short answer of each method, to warm up and to see how many repeats fit,
    between :data:`FEWEST` and :data:`MOST`. :meth:`advance` then decodes as far as it is told, so
    that something else can be timed in the same minutes; ``made`` counts the tokens, the first of
    each answer left out.
    """

    def __init__(
        self,
        verifier: Verifier,
        methods: Sequence[Method],
        prompt: tuple[int, ...],
        tokens: int,
        seconds: float,
        seed: int = 0,
    ) -> None:
        self.methods, self.prompt, self.tokens = methods, prompt, tokens
        self._verifier = verifier
        self._order = random.Random(seed)
        self._running: list[Answering] = []
        self.answers: dict[str, list[Answered]] = {method.name: [] for method in methods}
        self.made = 0
        once = self._warm(min(WARM_TOKENS, tokens))
        self.repeats = max(FEWEST, min(MOST, int(seconds / once)))

    def advance(self, share: float) -> None:
        """Decode until ``share`` (0–1) of all tokens of all repeats are there; 1: all of them."""
        aim = share * self.repeats * len(self.methods) * (self.tokens - 1)
        while self.made < aim:
            if not self._running:
                self._begin(self.tokens)
            self._step()
        assert share < 1 or not self._running, "whole answers make up the whole"

    def _warm(self, tokens: int) -> float:
        """A short answer of every method; returns what whole ones will take, seconds."""
        self._begin(tokens)
        while self._running:
            self._step()
        spent = sum(own.pop().seconds for own in self.answers.values())
        self.made = 0
        return spent * (self.tokens - 1) / max(1, tokens - 1)

    def _begin(self, tokens: int) -> None:
        self._running = [
            Answering.begin(self._verifier, method, self.prompt, tokens) for method in self.methods
        ]

    def _step(self) -> None:
        """The next round is always that of the answer furthest behind."""
        self._order.shuffle(self._running)
        behind = min(self._running, key=lambda answer: answer.made)
        before = behind.made
        behind.step()
        self.made += behind.made - before
        if behind.done:
            self._running.remove(behind)
            self.answers[behind.method.name].append(behind.answered)
