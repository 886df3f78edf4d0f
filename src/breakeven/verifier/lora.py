"""Row-gated LoRA: the adapter acts on the rows whose gate is on, and on no other.

``y = W x + (alpha / r) · g ⊙ B A x`` with ``g`` one bit per row (ALGORITHMS 1.4). Rows with gate
0 are the verifier's own, so their keys and values may be shared with verification. Saved and
read as a PEFT adapter directory, with the mask vector beside it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from breakeven.errors import DrafterError

if TYPE_CHECKING:
    from breakeven.verifier.architecture import Architecture

#: packed linear of the decoder -> the projections it packs, in order
GROUPS: dict[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
ADAPTER_FILE, CONFIG_FILE, MASK_FILE = (
    "adapter_model.safetensors",
    "adapter_config.json",
    "mask_vector.safetensors",
)


@dataclass(frozen=True, slots=True)
class LoRASpec:
    """Rank, scale and place of an adapter. ``layers`` None means every layer.

    ``late``: the mask vector is the input of the first of these layers, so masks skip the layers
    before it ("last-k").
    """

    rank: int = 16
    alpha: float = 32.0
    layers: tuple[int, ...] | None = None
    late: bool = False


class GroupLoRA(nn.Module):
    """Low-rank deltas of the projections packed in one linear of the decoder."""

    def __init__(self, rank: int, scale: float, inputs: int, outputs: tuple[int, ...]) -> None:
        super().__init__()
        self.rank, self.scale = rank, scale
        self.down = nn.Parameter(torch.empty(len(outputs) * rank, inputs))
        self.up = nn.ParameterList(nn.Parameter(torch.zeros(size, rank)) for size in outputs)
        for part in self.down.data.split(rank):
            nn.init.kaiming_uniform_(part, a=math.sqrt(5))  # as PEFT does

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in]`` to the delta ``[..., sum(out)]``, in the type of ``x``."""
        low = F.linear(x, self.down.to(x.dtype)).split(self.rank, dim=-1)
        parts = [F.linear(z, up.to(x.dtype)) for z, up in zip(low, self.up, strict=True)]
        return torch.cat(parts, dim=-1).mul(self.scale)


class RowLoRA(nn.Module):
    """LoRA on all linear projections of the chosen layers, and the trained mask vector ``[H]``.

    Qwen3-0.6B with rank 16 has 10,092,544 trainable LoRA parameters, as the paper's.
    """

    def __init__(self, architecture: Architecture, spec: LoRASpec | None = None) -> None:
        super().__init__()
        self.architecture, self.spec = architecture, spec or LoRASpec()
        chosen = self.spec.layers
        self.layers = tuple(range(architecture.layers)) if chosen is None else chosen
        scale = self.spec.alpha / self.spec.rank
        self.blocks = nn.ModuleDict(
            {
                str(layer): nn.ModuleDict(
                    {
                        group: GroupLoRA(self.spec.rank, scale, *architecture.linear_sizes(group))
                        for group in GROUPS
                    }
                )
                for layer in self.layers
            }
        )
        self.mask_vector = nn.Parameter(torch.zeros(architecture.hidden_size))

    @property
    def enter(self) -> int:
        """The layer whose input the mask vector is."""
        return self.layers[0] if self.spec.late else 0

    def delta(self, layer: int, group: str, x: Tensor) -> Tensor | None:
        """What the adapter adds to one packed linear for gated rows ``x``; None: nothing."""
        part = self.part(layer, group)
        if part is None:
            return None
        added: Tensor = part(x)
        return added

    def part(self, layer: int, group: str) -> GroupLoRA | None:
        """The deltas of one packed linear; None where the adapter leaves the layer alone."""
        if str(layer) not in self.blocks:
            return None
        module: GroupLoRA = self.blocks[str(layer)][group]  # type: ignore[index]
        return module

    def save(self, folder: Path, base: str, dtype: torch.dtype | None = None) -> None:
        """Write a PEFT adapter directory for the base model named ``base``, as ``dtype``."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {}

        def kept(tensor: Tensor) -> Tensor:
            return tensor.detach().to(dtype or tensor.dtype, copy=True).contiguous()

        for layer, group, index, name in self._projections():
            down, up = self._pair(layer, group, index)
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{prefix}.lora_A.weight"] = kept(down)
            tensors[f"{prefix}.lora_B.weight"] = kept(up)
        save_file(tensors, folder / ADAPTER_FILE, metadata={"format": "pt"})
        save_file({"mask_vector": kept(self.mask_vector)}, folder / MASK_FILE)
        (folder / CONFIG_FILE).write_text(json.dumps(self._peft_config(base), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path, architecture: Architecture, *, late: bool = False) -> RowLoRA:
        """Read an adapter directory; a missing file, key or shape is a :class:`DrafterError`.

        ``late`` is as in :class:`LoRASpec`; PEFT's configuration has no word for it.
        """
        config, tensors, mask = _read(folder)
        layers = config.get("layers_to_transform")
        spec = LoRASpec(
            rank=int(config["r"]),
            alpha=float(config["lora_alpha"]),
            layers=None if layers is None else tuple(layers),
            late=late,
        )
        lora = cls(architecture, spec)
        for layer, group, index, name in lora._projections():
            down, up = lora._pair(layer, group, index)
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            _fill(down, tensors, f"{prefix}.lora_A.weight", folder)
            _fill(up, tensors, f"{prefix}.lora_B.weight", folder)
        _fill(lora.mask_vector.data, mask, "mask_vector", folder)
        return lora

    def _projections(self) -> list[tuple[int, str, int, str]]:
        return [
            (layer, group, index, name)
            for layer in self.layers
            for group, names in GROUPS.items()
            for index, name in enumerate(names)
        ]

    def _pair(self, layer: int, group: str, index: int) -> tuple[Tensor, Tensor]:
        module = self.blocks[str(layer)][group]  # type: ignore[index]
        assert isinstance(module, GroupLoRA)
        return module.down.data.split(module.rank)[index], module.up[index].data

    def _peft_config(self, base: str) -> dict[str, object]:
        names = [name.split(".")[1] for group in GROUPS.values() for name in group]
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": self.spec.rank,
            "lora_alpha": self.spec.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": names,
            "layers_to_transform": None if self.spec.layers is None else list(self.spec.layers),
            "inference_mode": True,
        }


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    missing = [n for n in (CONFIG_FILE, ADAPTER_FILE, MASK_FILE) if not (folder / n).is_file()]
    if missing:
        raise DrafterError(f"{folder}: no {missing[0]}; give a directory written by 'train'")
    try:
        config = dict(json.loads((folder / CONFIG_FILE).read_text()))
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        if rank < 1 or not alpha > 0:
            raise ValueError(f"r = {rank}, lora_alpha = {alpha:g}")
        return config, load_file(folder / ADAPTER_FILE), load_file(folder / MASK_FILE)
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        raise DrafterError(f"{folder}: cannot be read ({error}); train or copy it again") from None


def _fill(target: Tensor, tensors: dict[str, Tensor], key: str, folder: Path) -> None:
    if key not in tensors:
        raise DrafterError(f"{folder}: tensor '{key}' is missing; the adapter is incomplete")
    if tensors[key].shape != target.shape:
        raise DrafterError(
            f"{folder}: tensor '{key}' has shape {list(tensors[key].shape)}, this verifier needs "
            f"{list(target.shape)}; the adapter was trained for another model"
        )
    target.copy_(tensors[key])
