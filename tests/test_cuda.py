"""What only a GPU can say: graphs capture, replay and agree. Run with ``pytest -m cuda``."""

from __future__ import annotations

import pytest
import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.fused import Fused
from breakeven.drafters.ngram import NGram
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.drafters.scripted import Oracle
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.rows import chain
from tiny import FAMILIES, tiny_config

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

REQUESTS = [Request(f"r{i}", (i + 1, 5, 9), 6 + 3 * i) for i in range(4)]


def on_gpu(family: str = "llama", dtype: torch.dtype = torch.float32) -> LeanVerifier:
    config = tiny_config(family, layers=3)
    return LeanVerifier.from_config(config, dtype=dtype, device="cuda")


def answers(verifier: LeanVerifier, **options: object) -> dict[str, list[int]]:
    return {c.id: c.tokens for c in generate(verifier, REQUESTS, **options)}  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gpu_says_what_the_cpu_says(family: str) -> None:
    cpu = LeanVerifier.from_config(tiny_config(family, layers=3), dtype=torch.float64)
    gpu = on_gpu(family, torch.float64)
    expected = answers(cpu)
    assert answers(gpu) == expected
    assert answers(GraphVerifier(gpu, capture=True)) == expected


@pytest.mark.parametrize("batch", [1, 3])
def test_every_drafter_leaves_the_output_alone(batch: int) -> None:
    eager = on_gpu(dtype=torch.float64)
    plain = answers(eager)
    script = {r.prompt: plain[r.id] for r in REQUESTS}
    gated = GatedPeftBD.untrained(eager, 4)
    for verifier in (eager, GraphVerifier(eager, capture=True)):
        for drafter in (
            Oracle(script, 64),
            NGram(),
            gated,
            Fused(gated.adapter, gated.plan),
            PeftBD.untrained(eager, 4),
        ):
            assert answers(verifier, drafter=drafter, k=4, batch=batch) == plain, drafter.name


def test_replays_follow_their_inputs() -> None:
    eager = on_gpu(dtype=torch.float64)
    graphs, ledger = GraphVerifier(eager, capture=True), Ledger()
    caches = [v.new_cache(2, 64) for v in (eager, graphs)]
    for turn in range(4):
        ids = torch.randint(64, (2, 3))
        outs = []
        for verifier, cache in zip((eager, graphs), caches, strict=True):
            rows = chain(ids, cache.lengths)
            outs.append(verifier.run(Phase.VERIFY, rows, cache, ledger))
            cache.commit([1 + turn % 2, 3])
        assert (outs[0].hidden - outs[1].hidden).abs().max() < 1e-10
    assert graphs.graphs == 1
    assert {p.mode for p in ledger.passes} == {"eager", "graph"}
    assert all(p.seconds > 0 for p in ledger.passes)


def test_a_pass_that_is_not_waited_for_is_timed_all_the_same() -> None:
    graphs, ledger = GraphVerifier(on_gpu(), capture=True), Ledger()
    cache = graphs.new_cache(1, 64)
    rows = chain(torch.tensor([[1, 2]]), cache.lengths)
    out = graphs.run(Phase.VERIFY, rows, cache, ledger, logits="choices", wait=False)
    assert out.choices is not None
    out.choices.tolist()
    ledger.settle()
    assert ledger.passes[0].seconds > 0
