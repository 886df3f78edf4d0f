"""What the GPU campaign measures: memory, passes by width, batch and mode, rounds of PEFT-BD."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import AutoConfig

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.base import Drafter
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.fused import Fused
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier, tensor_sizes
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows, chain, draft_block, with_groups

SHAPES: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "family": "llama",
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "Qwen3-0.6B": {
        "family": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    },
}
TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    widths: tuple[int, ...] = (1, 2, 4, 8, 16, 17, 32, 64)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    compiled: tuple[tuple[int, int], ...] = ((1, 1), (1, 4), (1, 17))  # batch, width
    context: int = 256
    rounds: int = 15
    masks: tuple[int, ...] = (16, 3)
    tokens: int = 128
    traffic: int = 1 << 30  # bytes read and copied to measure memory


SMALL = Scale((1, 4), (1, 2), ((1, 1),), 8, 2, (3,), 8, 1 << 20)


def random_model(name: str, device: str, *, tiny: bool) -> LeanVerifier:
    """A model of a published shape with random weights: bf16 on a GPU, fp32 on the CPU."""
    sizes = {**SHAPES[name], **(TINY if tiny else {})}
    config = AutoConfig.for_model(sizes.pop("family"), **sizes)
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    return LeanVerifier.from_config(config, dtype=dtype, device=device, native=False)


def in_modes(eager: LeanVerifier) -> dict[str, LeanVerifier]:
    """Eager and, on a GPU, graph; elsewhere the graph's passes without the graph."""
    capture = eager.device.type == "cuda"
    fast = GraphVerifier(eager, capture=capture)
    return {"eager": eager, fast.mode: fast}


def compiled(eager: LeanVerifier) -> GraphVerifier:
    """Static passes through torch.compile; off a GPU only its tracing is tried."""
    backend = "inductor" if eager.device.type == "cuda" else "eager"
    return GraphVerifier(
        eager, capture=False, compiler=lambda work: torch.compile(work, backend=backend)
    )


def seconds_of(device: torch.device, work: Callable[[], object], rounds: int) -> float:
    """Median wall time of ``work``, the device waited for; the first two runs do not count."""
    times = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return median(times[2:])


def memory(device: torch.device, scale: Scale) -> Row:
    """Bytes per second of reading a large tensor, and of copying it (both directions counted)."""
    source = torch.ones(scale.traffic // 4, device=device)
    target = torch.empty_like(source)
    read = seconds_of(device, source.sum, scale.rounds)
    copy = seconds_of(device, lambda: target.copy_(source), scale.rounds)
    return {
        "bytes": scale.traffic,
        "read_bytes_per_s": scale.traffic / read,
        "copy_bytes_per_s": 2 * scale.traffic / copy,
    }


def weight_bytes(verifier: LeanVerifier) -> int:
    """Bytes of weights that a plain step reads: all but an embedding table of its own."""
    sizes = tensor_sizes(verifier.architecture)
    if not verifier.architecture.tied:
        del sizes["model.embed_tokens.weight"]
    return verifier.dtype.itemsize * sum(torch.Size(size).numel() for size in sizes.values())


def filled(verifier: LeanVerifier, batch: int, context: int, room: int) -> KVCache:
    """A cache with ``context`` random tokens for each request and ``room`` rows behind them."""
    cache = verifier.new_cache(batch, context + room)
    prompt = torch.randint(verifier.shape.vocab_size, (batch, context))
    verifier.run(Phase.PREFILL, chain(prompt, cache.lengths), cache, Ledger(), logits="none")
    cache.commit(context)
    return cache


def pass_seconds(
    verifier: LeanVerifier, rows: Rows, cache: KVCache, rounds: int, adapter: RowLoRA | None = None
) -> float:
    """Median wall time of a pass with every row's arg-max; two warm-up passes do not count."""
    ledger = Ledger()
    for _ in range(rounds + 2):
        verifier.run(Phase.VERIFY, rows, cache, ledger, adapter=adapter, logits="choices")
    return median(p.seconds for p in ledger.passes[2:])


def curves(models: dict[str, LeanVerifier], scale: Scale) -> Iterator[Row]:
    """The cost of a verify pass by mode, batch and width; modes beside one another."""
    for batch in scale.batches:
        caches = {m: filled(v, batch, scale.context, max(scale.widths)) for m, v in models.items()}
        for width in scale.widths:
            for mode, verifier in models.items():
                if mode == "compiled" and (batch, width) not in scale.compiled:
                    continue
                cache = caches[mode]
                ids = torch.randint(verifier.shape.vocab_size, (batch, width))
                rows = chain(ids, cache.lengths)
                found: Row = {"mode": mode, "batch": batch, "width": width}
                try:
                    found["seconds"] = pass_seconds(verifier, rows, cache, scale.rounds)
                except torch.OutOfMemoryError:
                    found |= {"seconds": None, "why": "out of memory"}
                yield found


def untrained(verifier: LeanVerifier, masks: int) -> tuple[RowLoRA, BlockPlan]:
    """A gated adapter of rank 16 that nobody trained: it costs what a trained one costs."""
    adapter = RowLoRA(verifier.architecture).to(verifier.device, verifier.dtype)
    return adapter.requires_grad_(False), BlockPlan(masks)


def peft_passes(models: dict[str, LeanVerifier], masks: int, scale: Scale) -> Iterator[Row]:
    """A plain step, the draft pass of a root and ``masks`` masks, the verify pass of as many rows,
    and the fused pass with a group of masks for every outcome."""
    for mode, verifier in models.items():
        adapter, plan = untrained(verifier, masks)
        width = masks + 1
        cache = filled(verifier, 1, scale.context, width * width)
        ids = torch.randint(verifier.shape.vocab_size, (1, width))
        verify = chain(ids, cache.lengths)
        layouts: dict[str, tuple[Rows, RowLoRA | None]] = {
            "plain": (chain(ids[:, :1], cache.lengths), None),
            "draft": (draft_block(ids[:, :1], cache.lengths, plan.shape), adapter),
            "verify": (verify, None),
            "fused": (with_groups(verify, plan.shape, width), adapter),
        }
        for name, (rows, acting) in layouts.items():
            seconds = pass_seconds(verifier, rows, cache, scale.rounds, acting)
            yield {
                "mode": mode,
                "masks": masks,
                "pass": name,
                "rows": rows.width,
                "seconds": seconds,
            }


def rounds(models: dict[str, LeanVerifier], masks: int, scale: Scale) -> Iterator[Row]:
    """Real rounds with the untrained adapter: what a round costs in plain steps, all included.

    The break-even is the acceptance length at which such rounds equal plain decoding.
    """
    for mode, verifier in models.items():
        adapter, plan = untrained(verifier, masks)
        plain = _step(verifier, None, 0, scale)
        drafters: dict[str, Drafter] = {
            "two passes": GatedPeftBD(adapter, plan),
            "fused": Fused(adapter, plan),
        }
        for name, drafter in drafters.items():
            seconds = _step(verifier, drafter, plan.most, scale)
            yield {
                "mode": mode,
                "masks": masks,
                "round": name,
                "plain_seconds": plain,
                "round_seconds": seconds,
                "break_even": seconds / plain,
            }


def _step(verifier: LeanVerifier, drafter: Drafter | None, k: int, scale: Scale) -> float:
    """Wall seconds of a round (of a plain step without a drafter), decoding one request."""
    prompt = tuple(range(2, 2 + scale.context // 2))
    request = Request("r", prompt, scale.tokens)
    for _ in range(2):  # the first one captures the graphs
        ledger = Ledger()
        list(generate(verifier, [request], drafter=drafter, k=k, ledger=ledger))
    prefill = ledger.seconds(Phase.PREFILL)
    turns = len(ledger.rounds) if drafter else ledger.count(Phase.PLAIN)
    return (ledger.wall_s - prefill) / turns


def break_even(passes: Sequence[Row]) -> Iterator[Row]:
    """The acceptance length that the passes alone ask for: (draft + verify) / plain, fused / plain.

    >>> passes = [{"mode": "m", "masks": 3, "pass": p, "seconds": s}
    ...           for p, s in (("plain", 1.0), ("draft", 1.1), ("verify", 1.2), ("fused", 1.5))]
    >>> [(row["round"], round(row["break_even"], 2)) for row in break_even(passes)]
    [('two passes', 2.3), ('fused', 1.5)]
    """
    for mode, masks in dict.fromkeys((row["mode"], row["masks"]) for row in passes):
        cost = {
            row["pass"]: row["seconds"]
            for row in passes
            if (row["mode"], row["masks"]) == (mode, masks)
        }
        for name, total in (
            ("two passes", cost["draft"] + cost["verify"]),
            ("fused", cost["fused"]),
        ):
            yield {"mode": mode, "masks": masks, "round": name, "break_even": total / cost["plain"]}
