"""The same question put to vLLM and SGLang: command lines with their synthetic acceptance.

Both engines can be told how many drafts to accept, whatever the drafter says, so that the price
side of a verdict can be measured there with any drafter of the right shape.

- vLLM (read in 0.32): ``rejection_sample_method`` ``synthetic`` with
  ``synthetic_acceptance_rates``: unconditional, one for each draft, which is survival here.
- SGLang: ``SGLANG_SIMULATE_ACC_LEN`` is the acceptance length, the verifier's token included.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.cost.breakeven import expected_committed


@dataclass(frozen=True, slots=True)
class Commands:
    """How one engine is asked: serve speculatively, serve plainly, measure both."""

    engine: str
    speculative: str
    plain: str
    measure: str

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"{self.engine}, speculative: {self.speculative}",
            f"{self.engine}, plain:       {self.plain}",
            f"{self.engine}, measure:     {self.measure}",
        ]


def commands(model: str, survival: Sequence[float]) -> tuple[Commands, Commands]:
    """vLLM's and SGLang's; ``DRAFTER`` stands for any draft model, trained or not.

    >>> vllm, sglang = commands("my/model", [0.8, 0.4])
    >>> vllm.speculative.split("'")[1]  # doctest: +ELLIPSIS
    '{"method": "draft_model", "model": "DRAFTER", "num_speculative_tokens": 2, ...}'
    >>> sglang.speculative.split()[0]
    'SGLANG_SIMULATE_ACC_LEN=2.2'
    """
    name = shlex.quote(model)
    return _vllm(name, survival), _sglang(name, survival)


def _vllm(model: str, survival: Sequence[float]) -> Commands:
    config = {
        "method": "draft_model",
        "model": "DRAFTER",
        "num_speculative_tokens": len(survival),
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [round(s, 4) for s in survival],
    }
    return Commands(
        "vLLM",
        f"vllm serve {model} --speculative-config {shlex.quote(json.dumps(config))}",
        f"vllm serve {model}",
        f"vllm bench serve --model {model} --dataset-name random --random-input-len 128"
        " --random-output-len 128 --ignore-eos --max-concurrency 1 --num-prompts 24",
    )


def _sglang(model: str, survival: Sequence[float]) -> Commands:
    k = len(survival)
    length = round(expected_committed(survival), 3)
    return Commands(
        "SGLang",
        f"SGLANG_SIMULATE_ACC_LEN={length:g} SGLANG_SIMULATE_ACC_METHOD=match-expected"
        " SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token"
        f" python -m sglang.launch_server --model-path {model}"
        " --speculative-algorithm STANDALONE --speculative-draft-model-path DRAFTER"
        f" --speculative-num-steps {k} --speculative-eagle-topk 1"
        f" --speculative-num-draft-tokens {k + 1}",
        f"python -m sglang.launch_server --model-path {model}",
        f"python -m sglang.bench_serving --backend sglang --model {model} --dataset-name random"
        " --random-input-len 128 --random-output-len 128 --random-range-ratio 1"
        " --max-concurrency 1 --num-prompts 24",
    )
