"""What would go wrong on a GPU, found without one: see :mod:`pretend_cuda`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.bonus import BonusCorrection, BonusHead, CorrectedPeftBD
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fastmtp import FastMTP
from breakeven.drafters.fused import Fused
from breakeven.drafters.layer_skip import LayerSkip
from breakeven.drafters.ngram import NGram
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.drafters.tree import Tree
from breakeven.verifier import interface
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.interface import Output
from breakeven.verifier.lora import LoRASpec, RowLoRA
from pretend_cuda import OnDevice, PretendCuda
from tiny import tiny_config

REQUESTS = [Request(f"r{i}", (i + 1, 5, 9, 1), 6 + 4 * (i % 2)) for i in range(3)]
CONFIG = tiny_config(layers=3)
NAMES = (
    None,
    "ngram",
    "gated",
    "late masks",
    "two steps",
    "tree",
    "fused",
    "fused, bonus",
    "bonus",
    "own cache",
    "early exit",
    "layer skip",
    "fastmtp",
)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendCuda]:
    def timed(where: torch.device, work: Callable[[], None]) -> Callable[[], float]:
        work()
        return lambda: 0.5

    monkeypatch.setattr(interface, "timed", timed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda where: None)
    with PretendCuda() as mode:
        yield mode


def on_device() -> LeanVerifier:
    return LeanVerifier.from_config(CONFIG, dtype=torch.float64, device="cuda")


def drafters(verifier: LeanVerifier) -> dict[str, Callable[[], Drafter]]:
    last = verifier.shape.layers - 1
    late = RowLoRA(verifier.architecture, LoRASpec(rank=2, layers=(last,), late=True))
    late = late.to(verifier.device, verifier.dtype).requires_grad_(False)
    gated, own = GatedPeftBD.untrained(verifier, 3), PeftBD.untrained(verifier, 3)
    return {
        "ngram": NGram,
        "gated": lambda: gated,
        "late masks": lambda: GatedPeftBD(late, BlockPlan(2, last=1)),
        "two steps": lambda: GatedPeftBD(gated.adapter, gated.plan, steps=2),
        "tree": lambda: Tree(gated),
        "fused": lambda: Fused(gated.adapter, gated.plan),
        "fused, bonus": lambda: Fused(gated.adapter, gated.plan, bonus=bonus_head(verifier)),
        "bonus": lambda: CorrectedPeftBD(gated.adapter, gated.plan, None, bonus_head(verifier)),
        "own cache": lambda: own,
        "early exit": lambda: EarlyExit(3, 1),
        "layer skip": lambda: LayerSkip(3, [1]),
        "fastmtp": lambda: FastMTP.untrained(verifier, 3),
    }


def bonus_head(verifier: LeanVerifier) -> BonusHead:
    module = BonusCorrection(verifier.shape.hidden_size, 2)
    return BonusHead(module.to(verifier.device, verifier.dtype).requires_grad_(False), verifier)


def answers(
    verifier: LeanVerifier, drafter: Drafter | None = None, ledger: Ledger | None = None
) -> dict[str, list[int]]:
    found = generate(verifier, REQUESTS, drafter=drafter, k=3, batch=2, ledger=ledger)
    return {c.id: c.tokens for c in found}


PLAIN = answers(LeanVerifier.from_config(CONFIG, dtype=torch.float64))


def test_the_pretence_finds_mixed_devices_and_counts_waits(device: PretendCuda) -> None:
    there = torch.ones(3, device="cuda")
    assert isinstance(there, OnDevice)
    assert there.device.type == (there + 1)[:2].device.type == "cuda"
    with pytest.raises(RuntimeError, match="on the host"):
        there + torch.ones(3)
    assert device.waits == 0
    assert there.tolist() == [1.0] * 3
    assert bool(there.sum() > 2)
    assert device.waits == 2
    with device.capturing(), pytest.raises(AssertionError, match="cannot be captured"):
        int(there.sum())


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_on_the_host(device: PretendCuda, name: str | None, fast: bool) -> None:
    eager = on_device()
    drafter = None if name is None else drafters(eager)[name]()
    verifier = GraphVerifier(eager, capture=False) if fast else eager
    assert answers(verifier, drafter) == PLAIN


@pytest.mark.parametrize(
    "name", [None, "ngram", "gated", "late masks", "fused", "fused, bonus", "bonus"]
)
def test_a_graph_asks_nothing_and_a_round_waits_once(device: PretendCuda, name: str | None) -> None:
    eager = on_device()

    def captured(work: Callable[[], Output]) -> Callable[[], Output]:
        def guarded() -> Output:
            with device.capturing():
                return work()

        return guarded

    verifier = GraphVerifier(eager, capture=False, compiler=captured)
    make = (lambda: None) if name is None else drafters(eager)[name]
    waits, turns = [], []
    for tokens in (4, 16):
        ledger, before = Ledger(), device.waits
        request = Request("r", (7, 5, 9, 1), tokens)
        list(generate(verifier, [request], drafter=make(), k=3, ledger=ledger))
        waits.append(device.waits - before)
        turns.append(len(ledger.rounds) or ledger.count(Phase.PLAIN))
        assert all(p.seconds > 0 for p in ledger.passes)
    assert turns[1] > turns[0]
    assert waits[1] - waits[0] == turns[1] - turns[0]
