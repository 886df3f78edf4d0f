"""Ways to decode random prompts that advance a round at a time, each round timed in its parts."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
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
from breakeven.measure.calibration.passes import MOST
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.configuration import PLAIN
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

NOTHING = "nothing"
"""The drafter whose drafts cost nothing: its rounds show the decoder's own share."""
RATE = 0.6
"""Acceptance of each draft, given those before: the tokens of a round are a drafter's work, too."""
LEAD, SCRIPTED = 24, 96
"""Tokens before the base context where rounds begin, and tokens for which the truth is known."""


@dataclass(slots=True)
class Walker:
    """One way to decode ``batch`` random prompts.

    ``start`` is what its drafter spent on them, as if they were as long as the base context.
    ``aboard`` says that its verify passes are not of the drafts alone, or not all of a pass.
    """

    name: str
    k: int
    batch: int
    running: Batch
    ledger: Ledger
    free: int = 0
    start: float = 0.0
    aboard: bool = False
    draft: float = 0.0
    verify: float = 0.0
    outside: float = 0.0
    rows: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        """Which way it is: drafter, K, batch."""
        return self.name, self.k, self.batch

    def step(self) -> None:
        """One round; its three parts are in the fields, seconds, and the verify pass's width."""
        self.ledger.passes.clear()
        self.ledger.wall_s = 0.0
        with self.ledger.open():
            self.running.step()
        verifying = [p for p in self.ledger.passes if p.phase in (Phase.VERIFY, Phase.PLAIN)]
        self.draft = self.ledger.seconds(Phase.DRAFT)
        self.verify = sum(p.seconds for p in verifying)
        self.outside = self.ledger.other_s
        self.rows = max(p.rows for p in verifying)


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
    """What plain decoding answers to the prompts, as far as rounds will get."""
    prompts = _prompts(verifier, plan, max(plan.batches))
    room = verifier.shape.max_positions - len(prompts[0])
    asked = [Request(str(i), p, min(SCRIPTED, room)) for i, p in enumerate(prompts)]
    answers = generate(verifier, asked, batch=len(asked))
    return {prompts[int(answer.id)]: answer.tokens for answer in answers}


def _walker(
    verifier: Verifier,
    plan: CalibrationPlan,
    script: Script,
    name: str,
    drafter: Drafter | None,
    k: int,
    batch: int,
) -> Walker:
    """A batch of random prompts that ends only after the last round has been timed.

    The drafter works, and a script says which of its drafts are right: what it has to do with the
    tokens of a round is then the usual amount.
    """
    prompts = _prompts(verifier, plan, batch)
    longest = min((MOST + 1) * (k + 1), verifier.shape.max_positions - len(prompts[0]))
    requests = deque(Request(f"{name}-{i}", p, longest) for i, p in enumerate(prompts))
    free, aboard = (drafter.free, drafter.aboard != "nothing") if drafter else (0, False)
    if drafter is not None:
        rates = Acceptance((RATE,)).conditional(k, free)
        drafter = Dressed(drafter, Synthetic(script, verifier.shape.vocab_size, rates, plan.seed))
    ledger = Ledger()
    running = Batch(verifier, requests, drafter, Fixed(k), batch, None, ledger)
    running.admit(requests)
    own = after_prefill(ledger, batch) * plan.base / len(prompts[0])
    return Walker(name, k, batch, running, ledger, free, own, aboard)


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
