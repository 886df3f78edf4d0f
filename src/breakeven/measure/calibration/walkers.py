"""Ways to decode random prompts that advance a round at a time, each round timed in its parts."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from itertools import product

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.batch import Batch
from breakeven.decode.generate import generate
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import Dressed, RandomDrafter, Script, Synthetic
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.configuration import PLAIN
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

NOTHING = "nothing"
"""The drafter whose drafts cost nothing: its rounds show the decoder's own share."""
USUAL = Acceptance((0.6,))
"""Unless another is asked for: the tokens that a round commits are a drafter's work, too."""
LEAD, SCRIPTED = 24, 96
"""Tokens before the base context where rounds begin; tokens of an answer, the truth of which is
known (more where drafts are long)."""


@dataclass(slots=True)
class Walker:
    """One way to decode ``batch`` random prompts.

    ``starts`` are what its drafter spent on them, seconds, each time an answer began.
    ``aboard`` says that its verify passes are not of the drafts alone, or not all of a pass.
    """

    name: str
    k: int
    batch: int
    running: Batch
    ledger: Ledger
    requests: tuple[Request, ...]
    drafter: Drafter | None = None
    free: int = 0
    starts: list[float] = field(default_factory=list)
    aboard: bool = False
    draft: float = 0.0
    verify: float = 0.0
    outside: float = 0.0
    rows: int = 0
    left: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        """Which way it is: drafter, K, batch."""
        return self.name, self.k, self.batch

    def begin(self) -> None:
        """Prefill; the ledger then holds its passes alone."""
        self.ledger.passes.clear()
        self.running.admit(deque(self.requests))
        self.starts.append(after_prefill(self.ledger, self.batch))
        self.left = self.requests[0].max_new_tokens - 1

    def step(self) -> None:
        """One round; its three parts are in the fields, seconds, and the verify pass's width.

        Where an answer has no room for a whole one, all are ended and begun again first.
        """
        if self.left <= self.k:
            self._renew()
        self._round()
        verifying = [p for p in self.ledger.passes if p.phase in (Phase.VERIFY, Phase.PLAIN)]
        self.draft = self.ledger.seconds(Phase.DRAFT)
        self.verify = sum(p.seconds for p in verifying)
        self.outside = self.ledger.other_s
        self.rows = max(p.rows for p in verifying)

    def _round(self) -> None:
        self.ledger.passes.clear()
        self.ledger.rounds.clear()
        self.ledger.wall_s = 0.0
        with self.ledger.open():
            self.running.step()
        self.left -= max((r.committed for r in self.ledger.rounds), default=1)

    def _renew(self) -> None:
        """Also a first round, which may find nothing drafted."""
        self.running.retire()
        while self.running.size:
            self.running.step()
            self.running.retire()
        if self.drafter is not None:
            self.drafter.forget()
        self.begin()
        self._round()


def walkers_of(verifier: Verifier, plan: CalibrationPlan) -> tuple[list[Walker], tuple[str, ...]]:
    """Plain decoding, and free drafts and every drafter with every K and batch of the plan.

    Everything is divided by a plain step, so plain decoding of one request walks several times:
    about the square root of the number of the others. Also the names of the drafters that have no
    untrained form.
    """
    script = _script(verifier, plan)
    wanted = list(product(plan.drafters, plan.lengths, plan.batches))
    plain = [*plan.batches, *[1] * round(len(wanted) ** 0.5)]
    walkers = [_walker(verifier, plan, script, PLAIN, None, 0, batch) for batch in plain]
    skipped = []
    for k, batch in product(plan.lengths, plan.batches):
        nothing = RandomDrafter(verifier.shape.vocab_size, plan.seed)
        walkers.append(_walker(verifier, plan, script, NOTHING, nothing, k, batch))
    with meter("building drafters", len(wanted)) as bar:
        for name, k, batch in wanted:
            drafter = untrained(name, verifier, k)
            if drafter is None:
                skipped.append(name)
            elif k > drafter.free:  # a free token alone is plain decoding in two passes
                walkers.append(_walker(verifier, plan, script, name, drafter, k, batch))
            bar.advance()
    return walkers, tuple(dict.fromkeys(skipped))


def _prompts(verifier: Verifier, plan: CalibrationPlan, count: int) -> list[tuple[int, ...]]:
    """Random tokens, the same for every walker, a little shorter than the base context."""
    order = random.Random(plan.seed)
    size = max(1, min(plan.base, verifier.shape.max_positions // 2) - min(LEAD, plan.base // 4))
    return [tuple(order.choices(range(verifier.shape.vocab_size), k=size)) for _ in range(count)]


def _script(verifier: Verifier, plan: CalibrationPlan) -> Script:
    """What plain decoding answers to the prompts."""
    prompts = _prompts(verifier, plan, max(plan.batches))
    tokens = _answer_tokens(verifier, prompts[0], max(plan.lengths))
    asked = [Request(str(i), p, tokens) for i, p in enumerate(prompts)]
    answers = generate(verifier, asked, batch=len(asked))
    return {prompts[int(answer.id)]: answer.tokens for answer in answers}


def _answer_tokens(verifier: Verifier, prompt: tuple[int, ...], k: int) -> int:
    """Room for the first token and two whole rounds, at the least."""
    return min(max(SCRIPTED, 1 + 2 * (k + 1)), verifier.shape.max_positions - len(prompt))


def _walker(
    verifier: Verifier,
    plan: CalibrationPlan,
    script: Script,
    name: str,
    drafter: Drafter | None,
    k: int,
    batch: int,
) -> Walker:
    """A batch of random prompts, prefilled.

    The drafter works, and a script says which of its drafts are right: what it has to do with the
    tokens of a round is then the usual amount.
    """
    prompts = _prompts(verifier, plan, batch)
    longest = _answer_tokens(verifier, prompts[0], k)
    requests = tuple(Request(f"{name}-{i}", p, longest) for i, p in enumerate(prompts))
    free, aboard = (drafter.free, drafter.aboard != "nothing") if drafter else (0, False)
    if drafter is not None:
        rates = (plan.acceptance or USUAL).conditional(k, free)
        drafter = Dressed(drafter, Synthetic(script, verifier.shape.vocab_size, rates, plan.seed))
    ledger = Ledger()
    running = Batch(verifier, requests, drafter, Fixed(k), batch, None, ledger)
    made = Walker(name, k, batch, running, ledger, requests, drafter, free, aboard=aboard)
    made.begin()
    return made


def after_prefill(ledger: Ledger, batch: int) -> float:
    """Seconds of the passes behind those in which the verifier read ``batch`` prompts.

    It may have read them in several passes; whatever comes next is the drafter's own reading.
    """
    read, own = 0, 0.0
    for entry in ledger.passes:
        if read < batch:
            read += entry.batch
        else:
            own += entry.seconds
    return own
