"""Trained weights in a safetensors file: whole, of numbers, and of the shapes that are needed.

A row that another does not see weighs exactly 0 in its attention, and 0 times infinity is not 0:
an adapter with numbers that are not finite, or so large that sums are not, would reach into
verification. So it is refused.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from breakeven.errors import DrafterError

LARGEST = 1000.0
"""Magnitude of a weight; those of the shipped drafters end at 50."""


class WeightsFile:
    """The tensors of the file ``name`` in a drafter's folder."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises :class:`DrafterError` where there is no such file or it is torn."""
        self.folder, self.name = folder, name
        path = folder / name
        if not path.is_file():
            raise DrafterError(f"{folder}: no {name}; give a folder written by 'train'")
        try:
            self._tensors = load_file(path)
        except (OSError, ValueError, SafetensorError) as error:
            raise DrafterError(
                f"{path}: cannot be read ({error}); train or copy it again"
            ) from None

    def take(self, key: str, size: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> Tensor:
        """The tensor ``key`` as ``dtype``.

        Raises :class:`DrafterError` where it is missing, has not the shape ``size``, or has numbers
        that are not finite or larger than :data:`LARGEST`.
        """
        found = self.get(key)
        if tuple(found.shape) != tuple(size):
            raise DrafterError(
                f"{self.folder}: tensor '{key}' has shape {list(found.shape)}, this verifier needs "
                f"{list(size)}; the drafter was trained for another model"
            )
        if found.is_floating_point() != dtype.is_floating_point:
            raise DrafterError(
                f"{self.folder}: tensor '{key}' holds {str(found.dtype)[6:]}, not "
                f"{str(dtype)[6:]}; train or copy it again"
            )
        cast = found.to(dtype)
        if dtype.is_floating_point and not bool((cast.abs() <= LARGEST).all()):
            raise DrafterError(
                f"{self.folder}: tensor '{key}' holds numbers that are not finite or beyond "
                f"{LARGEST:g}; train it again, with a lower learning rate if it diverged"
            )
        return cast

    def get(self, key: str) -> Tensor:
        """The tensor ``key``, whatever it is; :class:`DrafterError` where it is missing."""
        if key not in self._tensors:
            raise DrafterError(
                f"{self.folder}: tensor '{key}' is missing; {self.name} is not whole, copy it again"
            )
        return self._tensors[key]
