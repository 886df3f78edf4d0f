"""Time whole rounds with every drafter, its weights random: drafting, verifying, the rest."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import product
from statistics import median

from breakeven.core import Phase
from breakeven.cost.calibration import DraftPrice
from breakeven.cost.ledger import Ledger
from breakeven.decode.batch import Batch
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import untrained
from breakeven.drafters.scripted import RandomDrafter
from breakeven.measure.calibration.passes import MOST, in_rounds
from breakeven.measure.calibration.plan import ROUNDS_SHARE, CalibrationPlan
from breakeven.measure.configuration import PLAIN
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

NOTHING = "nothing"
"""The drafter whose drafts cost nothing: its rounds show the decoder's own share."""


@dataclass(slots=True)
class Walker:
    """One way to decode ``batch`` random prompts, a round at a time."""

    name: str
    k: int
    batch: int
    running: Batch
    ledger: Ledger
    free: int = 0
    draft: float = 0.0
    verify: float = 0.0
    outside: float = 0.0

    def step(self) -> None:
        """One round; its three parts are in the fields, seconds."""
        self.ledger.passes.clear()
        self.ledger.wall_s = 0.0
        with self.ledger.open():
            self.running.step()
        self.draft = self.ledger.seconds(Phase.DRAFT)
        self.verify = self.ledger.seconds(Phase.VERIFY) + self.ledger.seconds(Phase.PLAIN)
        self.outside = self.ledger.other_s


@dataclass(frozen=True, slots=True)
class Rounds:
    """Medians over rounds. ``plain`` are the seconds of plain steps of one request, in order;
    ``plain_pass`` is the pass alone."""

    plain: tuple[float, ...]
    plain_pass: float
    outside: float
    drafters: dict[str, dict[int, DraftPrice]]
    skipped: tuple[str, ...] = field(default=())

    @property
    def step(self) -> float:
        """Seconds of a plain step, everything included."""
        return median(self.plain)


def measure_rounds(verifier: Verifier, plan: CalibrationPlan) -> Rounds:
    """Interleave plain steps and rounds of every drafter, K and batch of the plan.

    Random weights accept next to nothing, so a round commits one token (two with a free first
    token); prices hardly depend on it.
    """
    walkers, skipped = _walkers(verifier, plan)
    parts: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    plain: list[float] = []
    passes: list[float] = []
    for _, w in in_rounds("drafters", walkers, plan.seconds(ROUNDS_SHARE), plan.seed, Walker.step):
        parts[w.name, w.k, w.batch].append((w.draft, w.outside))
        if (w.name, w.batch) == (PLAIN, 1):
            plain.append(w.verify + w.outside)
            passes.append(w.verify)
    own = [w for w in walkers if w.name not in (PLAIN, NOTHING)]
    drafters: dict[str, dict[int, DraftPrice]] = {}
    for w in own:
        seconds = {b: median(d for d, _ in parts[w.name, w.k, b]) for b in plan.batches}
        outside = {b: median(o for _, o in parts[w.name, w.k, b]) for b in plan.batches}
        drafters.setdefault(w.name, {})[w.k] = DraftPrice(w.k + 1 - w.free, seconds, outside)
    rest = median(o for (name, *_), all_ in parts.items() if name == NOTHING for _, o in all_)
    return Rounds(tuple(plain), median(passes), rest, drafters, skipped)


def _walkers(verifier: Verifier, plan: CalibrationPlan) -> tuple[list[Walker], tuple[str, ...]]:
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
    return Walker(name, k, batch, running, ledger, drafter.free if drafter else 0)
