"""llama.cpp through llama-cpp-python: F32 and Q4_1, plain, and F32 with prompt lookup.

Plain decoding and passes call the C functions directly, which is the least the binding can cost.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from benchmarks.peers.workers.channel import Engine, Task, serve

SEQUENCE = 0


class LlamaCpp(Engine):
    """One model and one context."""

    package = "llama-cpp-python"

    def __init__(self, task: Task) -> None:
        lookup = task.mode == "lookup"
        self._llama = llama_cpp.Llama(
            str(task.gguf if task.mode == "q4_1" else f32(task)),
            n_ctx=task.positions,
            n_threads=task.threads,
            n_threads_batch=task.threads,
            verbose=False,
            draft_model=LlamaPromptLookupDecoding(task.longest_ngram, task.draft_tokens)
            if lookup
            else None,
        )
        self._context, self._lookup = self._llama.ctx, lookup
        self._vocabulary = self._llama.n_vocab()
        model = llama_cpp.llama_get_model(self._context)
        self._words = llama_cpp.llama_model_get_vocab(model)
        self._batch = llama_cpp.llama_batch_init(task.positions, 0, 1)

    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """One prompt after the other."""
        one = self._speculatively if self._lookup else self._plainly
        return [one(prompt, count) for prompt in prompts]

    def _plainly(self, prompt: list[int], count: int) -> list[int]:
        self._forget(0)
        self._run(prompt, 0, every_row=False)
        found = [self._best(len(prompt) - 1)]
        while len(found) < count and not self._ends(found[-1]):
            self._run(found[-1:], len(prompt) + len(found) - 1, every_row=False)
            found.append(self._best(0))
        return found

    def _speculatively(self, prompt: list[int], count: int) -> list[int]:
        self._llama.reset()
        self._forget(0)
        found: list[int] = []
        for token in self._llama.generate(prompt, top_k=1, temp=0.0, reset=False):
            found.append(int(token))
            if len(found) == count or self._ends(found[-1]):
                break
        return found

    def prepare(self, context: int, rows: int) -> Callable[[], object]:
        """``llama_decode`` of ``rows`` tokens with logits for all, arg-max included."""
        ids = np.random.default_rng(rows).integers(self._vocabulary, size=context + rows).tolist()
        self._forget(0)
        self._run(ids[:context], 0, every_row=False)

        def run() -> list[int]:
            self._run(ids[context:], context, every_row=True)
            return [self._best(row) for row in range(rows)]

        return run

    def _run(self, ids: list[int], start: int, every_row: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(ids)
        for row, token in enumerate(ids):
            batch.token[row], batch.pos[row] = token, start + row
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, SEQUENCE
            batch.logits[row] = every_row or row == len(ids) - 1
        status = llama_cpp.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")

    def _best(self, row: int) -> int:
        address = llama_cpp.llama_get_logits_ith(self._context, row)
        logits = np.ctypeslib.as_array(
            ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (self._vocabulary,)
        )
        return int(logits.argmax())

    def _ends(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_eog(self._words, token))

    def _forget(self, start: int) -> None:
        memory = llama_cpp.llama_get_memory(self._context)
        llama_cpp.llama_memory_seq_rm(memory, SEQUENCE, start, -1)


def f32(task: Task) -> Path:
    """The GGUF with all weights in fp32, made once by llama.cpp's own quantize call."""
    target = task.work / f"{task.gguf.stem}.F32.gguf"
    if not target.is_file():
        part = target.with_suffix(".part")
        options = llama_cpp.llama_model_quantize_default_params()
        options.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
        options.allow_requantize = True
        options.nthread = task.threads
        status = llama_cpp.llama_model_quantize(
            str(task.gguf).encode(), str(part).encode(), ctypes.byref(options)
        )
        if status:
            raise RuntimeError(f"llama_model_quantize returned {status}")
        part.rename(target)
    return target


if __name__ == "__main__":
    serve(LlamaCpp)
