"""Load a verifier by one name, with everything that goes with it."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import ModelError, nearest
from breakeven.verifier.architecture import Architecture, unsupported
from breakeven.verifier.checkpoint import Checkpoint
from breakeven.verifier.decoder import LeanVerifier, tensor_sizes
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.identity import Identity, identify
from breakeven.verifier.int8 import base_name, full_name, is_int8
from breakeven.verifier.interface import Verifier
from breakeven.verifier.native.body import obstacle
from breakeven.verifier.precision import check_dtype
from breakeven.verifier.rotary import Rotary
from breakeven.verifier.sources import model_folder

MODES = ("eager", "graph")
BACKENDS = ("auto", "native", "lean", "transformers")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A verifier with its tokenizer, its identity and its end-of-sequence ids."""

    verifier: Verifier
    tokenizer: Any  # transformers.PreTrainedTokenizerBase
    identity: Identity
    eos: frozenset[int]
    path: Path


def load_verifier(
    name: str,
    *,
    threads: int | None = None,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    weights: str | None = None,
    backend: str = "auto",
    mode: str | None = None,
    trust_remote_code: bool = False,
) -> Loaded:
    """Load ``name``: a bundled model, a directory, a hub id or a GGUF file.

    ``weights`` ``int8`` (also written ``NAME+int8``) rounds the weights, which makes another
    verifier: :mod:`breakeven.verifier.int8`.
    ``dtype`` defaults to fp32 on CPU and bf16 on CUDA. ``backend`` is ``native`` (the
    lean decoder on the CPU kernels), ``lean`` (the same decoder in PyTorch), ``transformers``, or
    ``auto``: the first of these that can run the model here. ``mode`` ``graph`` replays CUDA
    graphs (the lean decoder's default on CUDA), ``eager`` launches every kernel by itself. Raises
    :class:`ModelError`.
    """
    if backend not in BACKENDS:
        raise ModelError(f"backend '{backend}': {nearest(backend, BACKENDS)}")
    name = full_name(name, weights)
    device = _checked_device(device)
    _check_mode(mode, device)
    if threads:
        torch.set_num_threads(_allowed(threads))
    folder = model_folder(name)
    config = _config(folder, trust_remote_code)
    tokenizer = _tokenizer(folder, trust_remote_code)
    _check_tokenizer(folder, tokenizer, config)
    reason = unsupported(config)
    if mode == "graph" and (reason or backend == "transformers"):
        raise ModelError(f"mode 'graph': {name} runs through transformers; use mode eager")
    if backend in ("native", "lean") and reason:
        raise ModelError(f"{name}: {reason}; use backend auto or transformers")
    if is_int8(name) and (reason or backend == "transformers"):
        raise ModelError(
            f"{name}: int8 weights need the lean decoder ({reason or 'not backend transformers'}); "
            f"use {base_name(name)}"
        )
    dtype = dtype or (torch.bfloat16 if device.startswith("cuda") else torch.float32)
    check_dtype(dtype, torch.device(device))
    verifier: Verifier
    if reason is None and backend != "transformers":
        lean = _lean(name, folder, config, dtype, device, backend)
        graphs = device.startswith("cuda") and mode != "eager"
        verifier = GraphVerifier(lean, capture=True) if graphs else lean
    else:
        from breakeven.verifier.fallback import TransformersVerifier

        verifier = TransformersVerifier.load(name, folder, config, dtype, device, trust_remote_code)
    eos = _eos(folder, config, tokenizer)
    return Loaded(verifier, tokenizer, identify(name, folder, tokenizer), eos, folder)


def _checked_device(device: str) -> str:
    """The device by its plain name; :class:`ModelError` if it is unknown or not there."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise ModelError(f"device '{device}': give cpu, cuda or cuda:1")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device '{device}': this PyTorch sees no CUDA device; use device cpu")
    if kind == "cuda" and (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise ModelError(f"device '{device}': there are {torch.cuda.device_count()} CUDA devices")
    return device if kind == "cuda" else "cpu"  # launchers call it cpu:0, safetensors does not


def _check_mode(mode: str | None, device: str) -> None:
    """Raise :class:`ModelError` for an execution mode that is unknown or impossible there."""
    if mode not in (None, *MODES):
        raise ModelError(f"mode '{mode}': {nearest(mode, MODES)}")
    if mode == "graph" and not device.startswith("cuda"):
        raise ModelError(
            f"mode 'graph': CUDA graphs need a CUDA device, this is {device}; leave mode out, or "
            "give device cuda"
        )


def _allowed(threads: int) -> int:
    """The number of threads, unless so many that OpenMP would end the process."""
    most = 4 * max(16, os.cpu_count() or 1)
    if threads > most:
        raise ModelError(f"{threads} threads: give {os.cpu_count()} or fewer, one per core")
    return threads


def _config(folder: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers raises many kinds here
        raise ModelError(
            f"{folder}/config.json: not a model transformers knows ({_one_line(error)}); code "
            "inside model folders runs only with trust_remote_code"
        ) from None


def _tokenizer(folder: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:
        raise ModelError(
            f"{folder}: no usable tokenizer ({_one_line(error)}); copy the model's tokenizer.json "
            "and tokenizer_config.json there"
        ) from None


def _check_tokenizer(folder: Path, tokenizer: Any, config: Any) -> None:
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has ids up to {highest}, the model only "
            f"{config.vocab_size} embedding rows; this is another model's tokenizer"
        )


def _eos(folder: Path, config: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a sequence: generation config, model config and tokenizer together."""
    found: list[Any] = [config.eos_token_id, tokenizer.eos_token_id]
    file = folder / "generation_config.json"
    if file.is_file():
        found.append(json.loads(file.read_text()).get("eos_token_id"))
    flat = [i for item in found for i in (item if isinstance(item, list) else [item])]
    return frozenset(i for i in flat if i is not None)


def _lean(
    name: str, folder: Path, config: Any, dtype: torch.dtype, device: str, backend: str
) -> LeanVerifier:
    architecture = Architecture.from_config(config)
    if backend == "native":
        reason = obstacle(architecture, dtype, torch.device(device))
        if reason:
            raise ModelError(f"{name}: no native path here: {reason}; use backend auto or lean")
    int8 = is_int8(name)
    stored = torch.float32 if int8 else dtype  # what is rounded are the checkpoint's own numbers
    tensors = Checkpoint(folder, tensor_sizes(architecture), stored, device)
    rotary = Rotary.from_config(config, architecture, stored)
    native = backend != "lean" and stored is dtype
    verifier = LeanVerifier(architecture, rotary, tensors, name, native=native, int8=int8)
    if int8 and verifier.mode != "native" and backend != "lean":
        warnings.warn(
            f"{name}: int8 weights are faster in the CPU kernels only; here they are rounded, and "
            f"multiplied as {str(dtype)[6:]}",
            stacklevel=3,
        )
    return verifier if stored is dtype else verifier.recast(dtype)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
