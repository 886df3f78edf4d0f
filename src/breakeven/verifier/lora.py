"""Row-gated LoRA: the adapter acts on the rows whose gate is on, and on no other.

``y = W x + (alpha / r) · g ⊙ B A x`` with ``g`` one bit per row (ALGORITHMS 1.4). Rows with gate
0 are the verifier's own, so their keys and values may be shared with verification. Saved and
read as a PEFT adapter directory, with the mask vector beside it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from breakeven.errors import DrafterError
from breakeven.files import read_json
from breakeven.verifier.weights_file import WeightsFile

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
FOREIGN = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out")
"""What PEFT can do beyond it."""


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
    def load(
        cls,
        folder: Path,
        architecture: Architecture,
        *,
        late: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> RowLoRA:
        """Read an adapter directory; a missing file, key or shape is a :class:`DrafterError`.

        ``late`` is as in :class:`LoRASpec`; PEFT's configuration has no word for it.
        """
        spec = replace(_read_spec(folder, architecture), late=late)
        adapter, mask = WeightsFile(folder, ADAPTER_FILE), WeightsFile(folder, MASK_FILE)
        lora = cls(architecture, spec).to(dtype)
        for layer, group, index, name in lora._projections():
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            pair = zip("AB", lora._pair(layer, group, index), strict=True)
            for letter, target in pair:
                target.copy_(adapter.take(f"{prefix}.lora_{letter}.weight", target.shape, dtype))
        vector = lora.mask_vector.data
        vector.copy_(mask.take("mask_vector", vector.shape, dtype))
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


def _read_spec(folder: Path, architecture: Architecture) -> LoRASpec:
    """What ``adapter_config.json`` says, checked to be an adapter that this module computes."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise DrafterError(f"{folder}: no {CONFIG_FILE}; give a directory written by 'train'")
    try:
        config = dict(read_json(path))
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except (ArithmeticError, KeyError, TypeError, ValueError, OSError) as error:
        raise DrafterError(f"{path}: cannot be read ({error}); train or copy it again") from None
    widest = max(architecture.linear_sizes(group)[0] for group in GROUPS)
    if not 1 <= rank <= widest or not 0 < alpha < math.inf:
        raise DrafterError(
            f"{path}: r = {rank}, lora_alpha = {alpha:g}: a rank is 1 to {widest} here and alpha a "
            "number above 0; train or copy it again"
        )
    foreign = [name for name in FOREIGN if config.get(name)]
    if foreign:
        raise DrafterError(
            f"{path}: {foreign[0]} is set, which is not computed here; give a plain LoRA adapter"
        )
    return LoRASpec(rank, alpha, _layers(path, config.get("layers_to_transform"), architecture))


def _layers(path: Path, layers: object, architecture: Architecture) -> tuple[int, ...] | None:
    if layers is None:
        return None
    given = [layers] if isinstance(layers, int) else layers
    inside = range(architecture.layers)
    if isinstance(given, list) and given and all(type(i) is int and i in inside for i in given):
        return tuple(sorted(set(given)))
    raise DrafterError(
        f"{path}: layers_to_transform = {layers!r}: give some of the layers 0 to "
        f"{architecture.layers - 1} of this verifier"
    )
