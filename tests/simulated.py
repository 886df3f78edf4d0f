"""Rounds without a model: a clock that knows true prices, and dice that know true acceptance."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from breakeven.core import Choice, Pass, Phase, Round
from breakeven.cost.curve import CostCurve
from breakeven.decode.policy.base import Policy, Prospect
from breakeven.decode.policy.fixed import Fixed
from breakeven.drafters.scripted import RandomDrafter
from tiny import tiny_verifier

CURVE = CostCurve.of({1: 0.010, 2: 0.0105, 5: 0.011, 9: 0.013, 17: 0.020}, context=100)
"""Roughly the native path."""


class Dice(Fixed):
    """Lengths at random, often 0: a policy that decides badly on purpose."""

    def __init__(self, k: int, seed: int = 0) -> None:
        super().__init__(k)
        self._random = random.Random(seed)

    def choose(self, prospects: Sequence[Prospect], context: int) -> Choice:
        return Choice(max(0, self._random.randrange(-2, self.longest + 1)))


class Passes(RandomDrafter):
    """A drafter with traits; it is never asked to draft here."""

    def __init__(self, free: int = 0, *, sequential: bool = False, longest: int | None = None):
        super().__init__(vocab_size=8)
        self.free, self.sequential, self.longest = free, sequential, longest


@dataclass
class World:
    """What one simulated request does: its true rates, prices and matches.

    ``rate(position, match)`` is the true conditional acceptance; ``draft(k)`` the seconds of
    drafting, None for a lookup drafter, whose matches ``matches`` gives. A drafter that ``says``
    how sure it is of each token drafts one after another and may be told to stop; ``believed``
    turns its word into the true acceptance.
    """

    rate: Callable[[int, int | None], float]
    draft: Callable[[int], float] | None = None
    matches: Callable[[random.Random], tuple[int, int]] = lambda _: (0, 0)
    says: Callable[[random.Random], float] | None = None
    believed: Callable[[float], float] = lambda word: word
    free: int = 0
    curve: CostCurve = CURVE
    seed: int = 0
    noise: float = 0.03
    choices: list[Choice] = field(default_factory=list)

    def prepare(self, policy: Policy) -> Policy:
        """Tell the policy what kind of drafter this is."""
        policy.prepare(tiny_verifier(), Passes(self.free, sequential=self.says is not None))
        return policy

    def run(self, policy: Policy, tokens: int, request: str = "a") -> float:
        """Seconds that ``tokens`` tokens take beside plain decoding's: below 1 is faster."""
        dice = random.Random(self.seed)
        seconds, made = 0.0, 0
        while made < tokens:
            context = 100 + made
            match, offered = self.matches(dice) if self.draft is None else (None, 0)
            choice = policy.choose([Prospect(request, match, offered)], context)
            self.choices.append(choice)
            k = min(choice.k, offered) if self.draft is None else choice.k
            words = self.words(dice, policy, k)
            if self.says:
                k = len(words)
            accepted = self.accepted(dice, k, match, words)
            passes = list(self.passes(dice, k, context))
            spent = sum(p.seconds for p in passes)
            free = self.free if k and self.draft is not None else 0
            policy.observe(
                passes,
                [
                    Round(
                        request, k, accepted, accepted + 1, free, choice, match, offered, spent,
                        words,
                    )
                ],
            )  # fmt: skip
            seconds += spent
            made += accepted + 1
        policy.end(request)
        return seconds / (made * self.curve.seconds(1))

    def words(self, dice: random.Random, policy: Policy, k: int) -> tuple[float, ...]:
        """How sure the drafter is of each token, until it has made ``k`` or is told to stop."""
        words: list[float] = []
        while self.says and len(words) < k and not (words and policy.enough([words])):
            words.append(self.says(dice))
        return tuple(words)

    def accepted(
        self, dice: random.Random, k: int, match: int | None, words: Sequence[float] = ()
    ) -> int:
        """How many of ``k`` drafts the dice let pass."""
        for position in range(1, k + 1):
            rate = self.believed(words[position - 1]) if words else self.rate(position, match)
            if position > self.free and dice.random() >= rate:
                return position - 1
        return k

    def passes(self, dice: random.Random, k: int, context: int) -> Sequence[Pass]:
        """The passes of a round, with noise."""
        made = []
        if k and self.draft is not None:
            noisy = self.draft(k) * dice.gauss(1, self.noise)
            made.append(Pass(Phase.DRAFT, k, 1, context, noisy))
        rows = k + 1 - (self.free if k and self.draft is not None else 0)
        phase = Phase.VERIFY if k else Phase.PLAIN
        noisy = self.curve.seconds(rows) * dice.gauss(1, self.noise)
        return [*made, Pass(phase, rows, 1, context, noisy)]
