"""Answers decoded side by side, a round at a time: whatever slows the machine slows all alike."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from breakeven.core import Phase, Round
from breakeven.cost.ledger import Ledger
from breakeven.decode.batch import Batch
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Completion, Request
from breakeven.measure.trial import Method, quiet_collector
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

FEWEST, MOST = 2, 8
"""Repeats, whatever the time allows."""
WARM_TOKENS = 4


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


def decode_together(
    verifier: Verifier,
    methods: Sequence[Method],
    prompt: tuple[int, ...],
    tokens: int,
    seconds: float,
    seed: int = 0,
) -> Answers:
    """Answer one prompt with every method at once, as often as fits in ``seconds``.

    After a short answer of each that warms up, repeats between :data:`FEWEST` and :data:`MOST`.
    """
    began = time.perf_counter()
    order = random.Random(seed)
    answers: dict[str, list[Answered]] = {method.name: [] for method in methods}
    with quiet_collector():
        for _ in _side_by_side(
            verifier, methods, prompt, min(WARM_TOKENS, tokens), order, "check, warming up"
        ):
            pass
        repeats, turn = FEWEST, 0
        while turn < repeats:
            started, turn = time.perf_counter(), turn + 1
            label = f"check, answer {turn}"
            for name, answered in _side_by_side(verifier, methods, prompt, tokens, order, label):
                answers[name].append(answered)
            if turn == 1:
                once, left = time.perf_counter() - started, seconds - (started - began)
                repeats = max(FEWEST, min(MOST, int(left / once)))
    return answers


def _side_by_side(
    verifier: Verifier,
    methods: Sequence[Method],
    prompt: tuple[int, ...],
    tokens: int,
    order: random.Random,
    label: str,
) -> Iterator[tuple[str, Answered]]:
    """One answer of every method; the next round is always that of the answer furthest behind."""
    answers = [Answering.begin(verifier, method, prompt, tokens) for method in methods]
    with meter(label, len(methods) * (tokens - 1)) as bar:
        while answers:
            order.shuffle(answers)
            behind = min(answers, key=lambda answer: answer.made)
            before = behind.made
            behind.step()
            bar.advance(behind.made - before)
            if behind.done:
                answers.remove(behind)
                yield behind.method.name, behind.answered
