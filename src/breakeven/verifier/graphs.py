"""The lean decoder with one CUDA graph for each shape of a pass.

A pass of a few rows costs a GPU less than launching its kernels one by one costs the host; a graph
launches them at once. Graphs are captured when a shape is first met and replayed from then on;
prefill, whose widths never repeat, runs eagerly. Without ``capture`` the very same passes run
without graphs, on any device: that is how the tests hold them equal to the ordinary ones.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.verifier.block import BlockPass, grouped_mask
from breakeven.verifier.cache import KVCache, Past
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Launch, Order, Output
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows
from breakeven.verifier.static import Inlets, Key, StaticPast, extent_for, fits

MOST_GRAPHS = 128
WARM_UPS = 3
IDLE_CACHES = 4

Replay = Callable[[], Output]
Compiler = Callable[[Replay], Replay]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A pass ready for any numbers; the adapter is kept, since the key knows it by its id."""

    inlets: Inlets
    replay: Replay
    adapter: RowLoRA | None


class GraphVerifier(LeanVerifier):
    """A lean decoder whose passes are static; shares the weights of the one it is made over."""

    def __init__(
        self,
        eager: LeanVerifier,
        *,
        capture: bool,
        most: int = MOST_GRAPHS,
        compiler: Compiler | None = None,
    ) -> None:
        """``capture`` False: no graphs, the same passes. ``most``: graphs kept, latest used.

        ``compiler`` (``torch.compile``) makes each shape's pass a faster one.
        """
        self.__dict__.update(eager.__dict__)
        self.eager, self.mode, self.resident = eager, "graph" if capture else "static", True
        if compiler is not None:
            self.mode = "compiled"
        self._compiler = compiler
        self._native = None
        self._rotary = eager.rotary.on(self.device, self.shape.max_positions)
        self._capture, self._most = capture, most
        self._ready: OrderedDict[Key, _Ready] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle() if capture else None
        self._idle: list[tuple[Tensor, Tensor]] = []

    def recast(self, dtype: torch.dtype) -> LeanVerifier:
        """The eager decoder with weights of another type."""
        return self.eager.recast(dtype)

    def rounded(self) -> LeanVerifier:
        """The same passes over int8 weights."""
        twin = self.eager.rounded()
        return GraphVerifier(twin, capture=self._capture, most=self._most, compiler=self._compiler)

    @property
    def graphs(self) -> int:
        """How many shapes are ready."""
        return len(self._ready)

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache of at least ``capacity``, in memory that graphs may know already.

        A few caches that nobody holds any more are kept for that.
        """
        capacity = extent_for(capacity)
        for index, (keys, values) in enumerate(self._idle):
            if (keys.shape[1], keys.shape[3]) == (batch, capacity):
                del self._idle[index]
                cache = KVCache(keys, values, torch.zeros(batch, dtype=torch.long))
                break
        else:
            cache = super().new_cache(batch, capacity)
        shelve = weakref.finalize(cache, _shelve, self._idle, (cache.keys, cache.values))
        shelve.atexit = False
        return cache

    def prepare(self, order: Order) -> Launch:
        """The graph of a pass, captured if its shape is new; the pass itself for prefill."""
        if order.phase is Phase.PREFILL or not fits(order):
            return self.eager.prepare(order)
        key = Key.of(order)
        found = self._ready.get(key)
        if found is None:
            inlets = Inlets(key, order, self.device)
            inlets.put(order)  # warm-up passes write where this pass will
            found = _Ready(inlets, self._replay(key, order, inlets), order.adapter)
            self._ready[key] = found
            if len(self._ready) > self._most:
                self._ready.popitem(last=False)
        self._ready.move_to_end(key)
        inlets, replay = found.inlets, found.replay

        def launch() -> Output:
            inlets.put(order)
            return _kept(replay())

        return Launch(self.mode, launch)

    def _replay(self, key: Key, order: Order, inlets: Inlets) -> Replay:
        """The pass as a function of its inlets; captured as a graph if wanted."""
        past = StaticPast(order.cache, inlets.lengths.tensor, key.extent, key.front or 0)
        rows, adapter, logits = inlets.rows(), order.adapter, order.logits
        part = order.part
        if part is not None and inlets.states is not None:
            part = replace(part, inputs=inlets.states.tensor)

        def compute() -> Output:
            return self.answered(self.body(rows, past, adapter, key.taps, part), logits)

        work = compute if self._compiler is None else self._compiler(compute)
        return self._captured(work) if self._capture else work

    def _captured(self, compute: Callable[[], Output]) -> Replay:
        """Warm up on a side stream, then capture."""
        with torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    compute()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = compute()

        def replay() -> Output:
            graph.replay()
            return outputs

        return replay

    def _clean_rows(self, rows: Rows, past: Past) -> int:
        if isinstance(past, StaticPast):
            return past.front
        return super()._clean_rows(rows, past)

    def _shared(self, rows: Rows, past: Past, adapter: RowLoRA | None) -> BlockPass:
        if not isinstance(past, StaticPast):
            return super()._shared(rows, past, adapter)
        cos, sin = self._rotary(rows.positions)
        gate = None if rows.gate is None else rows.gate[:, None]
        adapter = None if gate is None else adapter
        span = past.span(rows)
        assert span.mask is not None
        bias = torch.zeros_like(span.mask, dtype=self.dtype).masked_fill_(~span.mask, -torch.inf)
        mask = grouped_mask(bias, self.shape.heads // self.shape.kv_heads)
        return BlockPass(cos, sin, past, span, mask, adapter, None, gate)


def _kept(out: Output) -> Output:
    """Copies of a graph's outputs, which the next replay overwrites."""
    return Output(
        out.hidden.clone(),
        None if out.logits is None else out.logits.clone(),
        {layer: tap.clone() for layer, tap in out.taps.items()},
        *(None if t is None else t.clone() for t in (out.choices, out.margins)),
    )


def _shelve(idle: list[tuple[Tensor, Tensor]], store: tuple[Tensor, Tensor]) -> None:
    """Keep the memory of a cache that nobody holds any more; the oldest goes."""
    idle.append(store)
    del idle[:-IDLE_CACHES]
