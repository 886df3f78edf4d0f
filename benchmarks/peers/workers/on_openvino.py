"""OpenVINO GenAI: plain and with prompt lookup, in fp32 throughout.

The model is exported once by optimum-intel. Passes of several rows are requests to the exported
model itself, since the pipeline has no such call.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from benchmarks.peers.workers.channel import Engine, Task, serve


class OpenVINO(Engine):
    """A pipeline for decoding, a compiled model for passes (made when one is asked for)."""

    package = "openvino-genai"

    def __init__(self, task: Task) -> None:
        self._folder, self._task, self._request = exported(task), task, None
        lookup = task.mode == "lookup"
        options: dict[str, Any] = {"prompt_lookup": True} if lookup else {}
        self._pipeline = openvino_genai.LLMPipeline(
            str(self._folder), "CPU", **settings(task), **options
        )
        self._settings = self._pipeline.get_generation_config()
        self._settings.do_sample = False
        self._settings.apply_chat_template = False
        if lookup:
            self._settings.num_assistant_tokens = task.draft_tokens
            self._settings.max_ngram_size = task.longest_ngram

    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """One prompt after the other."""
        self._settings.max_new_tokens = count
        found = []
        for prompt in prompts:
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            inputs = openvino_genai.TokenizedInputs(
                ids, openvino.Tensor(np.ones((1, len(prompt)), dtype=np.int64))
            )
            found.append(list(self._pipeline.generate(inputs, self._settings).tokens[0]))
        return found

    def prepare(self, context: int, rows: int) -> Callable[[], object]:
        """One inference of the stateful model, arg-max of all rows included."""
        if self._request is None:
            model = openvino.Core().compile_model(
                str(self._folder / "openvino_model.xml"), "CPU", settings(self._task)
            )
            self._request = model.create_infer_request()
        request: Any = self._request
        request.reset_state()
        _infer(request, 0, context)
        return lambda: _infer(request, context, rows)


def _infer(request: Any, start: int, rows: int) -> Any:
    positions = np.arange(start, start + rows, dtype=np.int64)[None]
    inputs = {
        "input_ids": positions + 1000,
        "attention_mask": np.ones((1, start + rows), dtype=np.int64),
        "position_ids": positions,
        "beam_idx": np.zeros(1, dtype=np.int32),
    }
    request.infer(inputs, share_inputs=True)
    return request.get_output_tensor(0).data.argmax(-1)


def settings(task: Task) -> dict[str, Any]:
    """fp32 weights, activations and cache (the default cache is 8-bit), and our threads."""
    return {
        "INFERENCE_NUM_THREADS": task.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }


def exported(task: Task) -> Path:
    """The model in OpenVINO's format, exported once."""
    target = task.work / f"{task.model.name}-openvino-f32"
    if not target.is_dir():
        from optimum.intel import OVModelForCausalLM
        from transformers import AutoTokenizer

        part = target.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        model = OVModelForCausalLM.from_pretrained(
            task.model, export=True, compile=False, load_in_8bit=False
        )
        model.save_pretrained(part)
        tokenizer = AutoTokenizer.from_pretrained(task.model)
        tokenizer.save_pretrained(part)
        _convert_tokenizer(tokenizer, part)
        part.rename(target)
    return target


def _convert_tokenizer(tokenizer: Any, folder: Path) -> None:
    from openvino_tokenizers import convert_tokenizer

    encoder, decoder = convert_tokenizer(tokenizer, with_detokenizer=True)
    openvino.save_model(encoder, folder / "openvino_tokenizer.xml")
    openvino.save_model(decoder, folder / "openvino_detokenizer.xml")


if __name__ == "__main__":
    serve(OpenVINO)
