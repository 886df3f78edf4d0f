"""transformers ``generate``: plain and with prompt lookup."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.peers.workers.channel import Engine, Task, serve


class Transformers(Engine):
    """The reference implementation, eager, SDPA attention."""

    package = "transformers"

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(task.threads)
        self._model = AutoModelForCausalLM.from_pretrained(task.model, dtype=torch.float32).eval()
        self._options = {}
        if task.mode == "lookup":
            self._options = {
                "prompt_lookup_num_tokens": task.draft_tokens,
                "max_matching_ngram_size": task.longest_ngram,
            }

    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """One prompt after the other."""
        found = []
        for prompt in prompts:
            ids = torch.tensor([prompt])
            whole = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=count,
                **self._options,
            )
            found.append(whole[0, len(prompt) :].tolist())
        return found

    def prepare(self, context: int, rows: int) -> Callable[[], object]:
        """A forward pass over a cache, arg-max included."""
        cache, vocabulary = DynamicCache(), self._model.config.vocab_size

        @torch.inference_mode()
        def run(width: int) -> torch.Tensor:
            ids = torch.randint(vocabulary, (1, width))
            logits: torch.Tensor = self._model(ids, past_key_values=cache).logits
            return logits.argmax(-1)

        run(context)
        return lambda: run(rows)


if __name__ == "__main__":
    serve(Transformers)
