"""The adaptive policy: the draft length with the most predicted tokens per second, 0 included.

Each round, for every k up to the longest:

    speed(k) = tokens that a round of k drafts is expected to commit / its price

(ALGORITHMS 8.2 and 8.5, SmartSpec's goodput), from running survival and running cost. A length
above 0 is taken only where it is predicted to beat plain decoding by :data:`MARGIN`. Whether a
model-free drafter has found a match, and how long a one, is known before anything is paid, so
survival is conditioned on it.

A drafter that drafts token by token and says how sure it is of each needs no k: it stops by itself
(:mod:`~breakeven.decode.policy.stopping`), and the choice is only whether it drafts at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.core import Choice, Pass, Reason, Round
from breakeven.cost.calibration import Calibration
from breakeven.cost.curve import CostCurve
from breakeven.cost.running import RunningCost
from breakeven.cost.survival import RunningSurvival
from breakeven.decode.policy.base import Policy, Prospect
from breakeven.decode.policy.probing import Probing
from breakeven.decode.policy.stopping import Stopping
from breakeven.drafters.base import Drafter
from breakeven.verifier.interface import Verifier
from breakeven.verifier.timing import quick_curve

MARGIN = 1.01
"""Predicted speed, relative to plain decoding, from which drafting is taken up."""
FRESH = 16
"""Rounds for which a list of prices is used."""
FURTHER = 32
"""Every so many drafts one is a token longer than the best."""
CONTEXT_STEP = 64
"""Contexts of one list of prices lie within so many tokens."""

Key = tuple[int, int, bool]


class Adaptive(Policy):
    """Chooses k in 0..``longest`` for each round; a batch shares the choice.

    All requests of a pass have as many rows as the longest draft, so shortening one request's
    draft alone saves nothing: one k is chosen for the sum of their expected tokens, and a request
    whose own draft is shorter (no match, end of its budget) only adds less to that sum.

    ``curve`` prices passes before they were seen; None measures a few widths when decoding
    starts. The running medians correct it in either case, and they, the survival and the probing
    budget live as long as the policy: give one policy to every call of ``generate``.
    """

    def __init__(self, longest: int = 16, curve: CostCurve | Calibration | None = None) -> None:
        self.longest, self._curve = longest, curve
        self._deepest = longest  # that passes can draft
        self._survival, self._probing = RunningSurvival(), Probing()
        self._stopping = Stopping()
        self._sequential = False
        self._further: dict[tuple[int, int], list[float]] = {}
        self._steps: list[float] = []  # what each further token costs in this round, plain steps
        self._cost: RunningCost | None = None
        self._free = 0
        self._prices: dict[Key, list[float]] = {}
        self._age = 0  # rounds since prices were computed
        self._drafted = 1  # rounds with drafts, probes apart
        self._choice = Choice(0, Reason.PLAIN)

    def prepare(self, verifier: Verifier, drafter: Drafter) -> None:
        """Take over the drafter's ways, and measure the curve if there is none."""
        if self._cost is not None:
            return
        if self._curve is None:
            self._curve = quick_curve(verifier, self.longest + 1)
        self._cost = RunningCost(self._curve, sequential=drafter.sequential)
        self._free, self._sequential = drafter.free, drafter.sequential
        drafts = self.longest if drafter.longest is None else drafter.longest
        self._deepest = min(self.longest, drafts)
        if not drafter.looks_up:
            self.longest = self._deepest

    def choose(self, prospects: Sequence[Prospect], context: int) -> Choice:
        """The length with the highest predicted speed, a plain step, or a probe."""
        self._choice = self._best(prospects, context)
        return self._choice

    def _best(self, prospects: Sequence[Prospect], context: int) -> Choice:
        light = all(p.match is not None for p in prospects)
        self._steps = []
        most = max(p.offered for p in prospects) if light else self._deepest
        most = min(most, self.longest)
        if most == 0:
            return Choice(0, Reason.NOTHING)
        prices = self._price_list(len(prospects), context, light)
        committed = self._committed(prospects, most, light)
        plain = len(prospects) / prices[0]
        k, price = most, 0.0
        if not light and self._sequential:
            self._steps = self._step_list(len(prospects), context, prices[0])
            price = prices[0] * (self._stopping.price or 0.0)
        if not price:
            k = max(range(1, most + 1), key=lambda length: committed[length] / prices[length])
            price = prices[k]
        speed = committed[k] / price
        if speed >= MARGIN * plain:
            if k < most and self._drafted % FURTHER == 0:
                speed = committed[k + 1] / prices[k + 1]
                return Choice(k + 1, Reason.FURTHER, speed / plain)
            return Choice(k, Reason.BEST, speed / plain)
        lost = price - committed[k] / plain
        if all(self._probing.due(p.request, lost, prices[0]) for p in prospects):
            return Choice(k, Reason.PROBE, speed / plain)
        return Choice(0, Reason.PLAIN)

    def enough(self, confidences: Sequence[Sequence[float]]) -> bool:
        """Whether further tokens are worth less than their passes."""
        if not self._steps:
            return False
        return self._stopping.enough(confidences, self._steps[max(map(len, confidences)) :])

    def _committed(self, prospects: Sequence[Prospect], most: int, light: bool) -> list[float]:
        """Expected tokens of a round of 0, 1, … ``most`` drafts, over all requests."""
        total = [float(len(prospects))] * (most + 1)
        for p in prospects:
            length = min(most, p.offered) if light else most
            ahead = self._survival.ahead(
                p.request, length, free=0 if light else self._free, match=p.match
            )
            earned = 0.0
            for k, share in enumerate(ahead, start=1):
                earned += share
                total[k] += earned
            for k in range(length + 1, most + 1):
                total[k] += earned
        return total

    def _step_list(self, batch: int, context: int, plain: float) -> list[float]:
        """What a token costs after 0, 1, … others, in plain steps; kept as long as prices are."""
        key = (batch, context // CONTEXT_STEP)
        if key not in self._further:
            assert self._cost is not None
            self._further[key] = [
                self._cost.further(drafted, batch=batch, context=context) / plain
                for drafted in range(self._deepest)
            ]
        return self._further[key]

    def _price_list(self, batch: int, context: int, light: bool) -> list[float]:
        """Seconds of a round of 0, 1, … drafts, kept for a few rounds."""
        assert self._cost is not None, "prepare() comes first"
        key = (batch, context // CONTEXT_STEP, light)
        if self._age >= FRESH:
            self._prices.clear()
            self._further.clear()
            self._age = 0
        if key not in self._prices:
            free, cost = self._free, self._cost
            self._prices[key] = [
                cost.plain(batch=batch, context=context),
                *(
                    cost.drafting(k, batch=batch, context=context, free=free, light=light)
                    for k in range(1, self.longest + 1)
                ),
            ]
        return self._prices[key]

    def observe(self, passes: Sequence[Pass], rounds: Sequence[Round]) -> None:
        """Learn prices and survival, and keep the probing budget."""
        assert self._cost is not None, "prepare() comes first"
        self._age += 1
        last = passes[-1]
        light = all(r.match is not None for r in rounds)
        prices = self._price_list(last.batch, last.context, light)
        drafted = max(r.drafted for r in rounds)
        self._cost.observe(passes, rounds[0].seconds, drafted=drafted, light=light)
        stopping = bool(drafted) and not light and self._sequential and bool(rounds[0].confidences)
        if stopping:
            self._stopping.observe(rounds, prices[drafted] / prices[0])
        for r in rounds:
            # what comes behind the end of an answer does not count; where a drafter stopped by
            # itself, the next token is one that was not made
            tried = min(self._choice.k, drafted + 1) if stopping else r.drafted
            self._survival.observe(
                r.request,
                drafted=tried,
                accepted=min(r.accepted, r.committed),
                free=r.free,
                match=r.match,
            )
        if self._choice.reason is Reason.PROBE:
            worth = sum(r.accepted + 1 for r in rounds) * prices[0] / len(rounds)
            for r in rounds:
                self._probing.tried(r.request, (prices[drafted] - worth) / len(rounds))
        elif self._choice.k == 0:
            for r in rounds:
                self._probing.waited(r.request, prices[0] / len(rounds))
                self._survival.idle(r.request)
        else:
            self._drafted += 1
            self._probing.passed(prices[drafted])

    def end(self, request: str) -> None:
        """Forget the request's own state."""
        self._survival.forget(request)
        self._probing.forget(request)
