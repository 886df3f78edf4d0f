"""The verifier's own continuations of prompts: greedy, batched, kept as they come."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import torch

from breakeven.core import Finish
from breakeven.data.journal import Journal
from breakeven.data.recipe import GenerateSection
from breakeven.data.render import Rendered
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.progress import Meter, meter
from breakeven.verifier.interface import Verifier

WINDOW = 8  # batches that are sorted by length together
PROBE = 4  # steps that an estimate measures


@dataclass(frozen=True, slots=True)
class Continuation:
    """Token ids (the end-of-sequence id included) and why they end."""

    token_ids: tuple[int, ...]
    finish: Finish


def regenerate(
    verifier: Verifier,
    eos: frozenset[int],
    rows: Sequence[Rendered],
    journal: Journal,
    settings: GenerateSection,
) -> dict[str, Continuation]:
    """Continuations by :attr:`Rendered.key` of all ``rows``; only missing ones are made.

    Every finished row is in the journal before the next one is asked for, so a kill or Ctrl-C
    loses nothing. Near ties may fall differently with another ``batch``.
    """
    asked = {row.key for row in rows}
    done = {e["key"]: _entry(e) for e in journal.entries if e["key"] in asked}
    todo = arranged([row for row in rows if row.key not in done], settings.batch)
    with meter("continuations", len(rows), done=len(rows) - len(todo)) as progress:
        work = _Work(verifier, eos, journal, settings, progress, done)
        shares = [todo[i :: settings.workers] for i in range(settings.workers)]
        with ThreadPoolExecutor(settings.workers) as pool:
            running = [pool.submit(work.run, share) for share in shares]
            try:
                wait(running, return_when=FIRST_EXCEPTION)
            finally:
                work.stop.set()
        for worker in running:
            worker.result()
    journal.sync()
    return done


def estimate(
    verifier: Verifier, eos: frozenset[int], rows: Sequence[Rendered], settings: GenerateSection
) -> float:
    """Seconds that :func:`regenerate` of ``rows`` may take with one worker.

    Measured on one batch of a few tokens; answers are taken to be half as long as allowed.
    """
    probe = arranged(rows, settings.batch)[: settings.batch]
    spent = []
    for tokens in (1, 1 + PROBE):
        requests = [Request(row.key, row.prompt_ids, tokens) for row in probe]
        start = time.perf_counter()
        list(generate(verifier, requests, batch=settings.batch))
        spent.append(time.perf_counter() - start)
    step = max(0.0, spent[1] - spent[0]) / PROBE
    return len(rows) / len(probe) * (spent[0] + step * settings.max_new_tokens / 2)


def arranged(rows: Sequence[Rendered], batch: int, seed: int = 0) -> list[Rendered]:
    """Shuffled, then sorted by length within windows of a few batches.

    Neighbours are alike in length, and whatever is done early is a fair sample of the whole.
    """
    order = sorted(rows, key=lambda row: row.key)
    random.Random(seed).shuffle(order)
    size = WINDOW * batch
    windows = [order[i : i + size] for i in range(0, len(order), size)]
    return [row for w in windows for row in sorted(w, key=lambda r: -len(r.prompt_ids))]


@dataclass(slots=True)
class _Work:
    """What the workers share."""

    verifier: Verifier
    eos: frozenset[int]
    journal: Journal
    settings: GenerateSection
    progress: Meter
    done: dict[str, Continuation]
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    def run(self, rows: Sequence[Rendered]) -> None:
        if self.settings.threads is not None:
            torch.set_num_threads(self.settings.threads)
        limit = self.settings.max_new_tokens
        requests = [Request(row.key, row.prompt_ids, limit, self.eos) for row in rows]
        for answer in generate(self.verifier, requests, batch=self.settings.batch):
            if self.stop.is_set():
                return
            self._keep(answer.id, Continuation(tuple(answer.tokens), answer.finish))

    def _keep(self, key: str, continuation: Continuation) -> None:
        ids = continuation.token_ids
        with self.lock:
            self.journal.append({"key": key, "ids": ids, "finish": continuation.finish})
            self.done[key] = continuation
            self.tokens += len(ids)
            rate = self.tokens / max(1e-9, time.monotonic() - self.started)
            self.progress.note(f"{rate:.0f} tokens/s")
            self.progress.advance()


def _entry(entry: dict[str, object]) -> Continuation:
    ids, finish = entry["ids"], entry["finish"]
    assert isinstance(ids, list | tuple)
    return Continuation(tuple(ids), Finish(str(finish)))
