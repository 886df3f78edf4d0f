"""Ways to decode random prompts that advance a round at a time, each round timed in its parts."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from itertools import product

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.batch import Batch
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import RandomDrafter
from breakeven.measure.calibration.passes import MOST
from breakeven.measure.calibration.plan import CalibrationPlan
from breakeven.measure.configuration import PLAIN
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

NOTHING = "nothing"
"""The drafter whose drafts cost nothing: its rounds show the decoder's own share."""


@dataclass(slots=True)
class Walker:
    """One way to decode ``batch`` random prompts; ``start`` is what its drafter spent on them."""

    name: str
    k: int
    batch: int
    running: Batch
    ledger: Ledger
    free: int = 0
    start: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    outside: float = 0.0
    rows: int = 0

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
    """Plain decoding, free drafts and every drafter, K and batch of the plan.

    Also the names of the drafters that have no untrained form.
    """
    walkers = [_walker(verifier, plan, PLAIN, None, 0, batch) for batch in plan.batches]
    skipped = []
    middle = sorted(plan.lengths)[len(plan.lengths) // 2]
    nothing = RandomDrafter(verifier.shape.vocab_size, plan.seed)
    walkers.append(_walker(verifier, plan, NOTHING, nothing, middle, 1))
    wanted = list(product(plan.drafters, plan.lengths, plan.batches))
    with meter("building drafters", len(wanted)) as bar:
        for name, k, batch in wanted:
            drafter = untrained(name, verifier, k)
            if drafter is None:
                skipped.append(name)
            elif k > drafter.free:  # a free token alone is plain decoding in two passes
                walkers.append(_walker(verifier, plan, name, drafter, k, batch))
            bar.advance()
    return walkers, tuple(dict.fromkeys(skipped))


def _walker(
    verifier: Verifier,
    plan: CalibrationPlan,
    name: str,
    drafter: Drafter | None,
    k: int,
    batch: int,
) -> Walker:
    """A batch of random prompts that ends only after the last round has been timed."""
    order = random.Random(plan.seed)
    vocabulary = range(verifier.shape.vocab_size)
    size = max(1, min(plan.base, verifier.shape.max_positions // 2))
    longest = min((MOST + 1) * (k + 1), verifier.shape.max_positions - size)
    requests = deque(
        Request(f"{name}-{i}", tuple(order.choices(vocabulary, k=size)), longest)
        for i in range(batch)
    )
    ledger = Ledger()
    running = Batch(verifier, requests, drafter, Fixed(k), batch, None, ledger)
    running.admit(requests)
    own = sum(p.seconds for p in ledger.passes[1:])  # the first is the verifier's prefill
    return Walker(name, k, batch, running, ledger, drafter.free if drafter else 0, own)
