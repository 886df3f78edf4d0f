"""The weight files of a model directory, read tensor by tensor as they are asked for.

A decoder packs each tensor as it takes it, so a model is never in memory twice while it loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from breakeven.errors import ModelError


class Checkpoint(Mapping[str, Tensor]):
    """Tensors by name, from all ``*.safetensors`` files of a directory; each access reads."""

    def __init__(
        self,
        folder: Path,
        sizes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: str = "cpu",
    ) -> None:
        """``sizes`` are the tensors wanted: one that is missing or has another shape is a
        :class:`ModelError`, and so is a broken file.
        """
        self._dtype, self._device = dtype, device
        self._files: dict[str, Path] = {}
        found = {}
        for file in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(file, framework="pt") as tensors:
                    for key in tensors.keys():  # noqa: SIM118 - not a mapping
                        self._files[key] = file
                        found[key] = tuple(tensors.get_slice(key).get_shape())
            except (SafetensorError, OSError) as error:
                reason = " ".join(str(error).split())[:200]
                raise ModelError(
                    f"{file}: truncated or corrupt ({reason}); download it again"
                ) from None
        for key, size in sizes.items():
            if key not in found:
                raise ModelError(
                    f"{folder}: tensor '{key}' is missing; a weight file was not copied"
                )
            if found[key] != size:
                raise ModelError(
                    f"{folder}: '{key}' has shape {list(found[key])}, config.json says {list(size)}"
                )

    def __getitem__(self, key: str) -> Tensor:
        with safe_open(self._files[key], framework="pt", device=self._device) as tensors:
            tensor: Tensor = tensors.get_tensor(key)
        return tensor.to(self._dtype)

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
