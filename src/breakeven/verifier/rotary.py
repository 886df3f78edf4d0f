"""Rotary position tables, with frequencies computed by transformers for each rope type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from breakeven.verifier.architecture import Architecture


class Rotary:
    """Cosine and sine of every position: ``positions [B, W]`` to two ``[B, 1, W, d]``."""

    def __init__(self, inverse_frequencies: Tensor, scale: float, dtype: torch.dtype) -> None:
        self._frequencies, self._scale, self._dtype = inverse_frequencies, scale, dtype
        self._cos = self._sin = torch.empty(0, inverse_frequencies.numel() * 2)
        self._device = torch.device("cpu")
        self._whole = False  # the tables hold every position there can be

    @classmethod
    def from_config(cls, config: Any, architecture: Architecture, dtype: torch.dtype) -> Rotary:
        """Frequencies of a transformers config (default, linear, llama3 and yarn rope types)."""
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        rope = getattr(config, "rope_parameters", None) or {}
        kind = rope.get("rope_type", "default")
        if kind == "default":
            steps = torch.arange(0, architecture.head_dim, 2, dtype=torch.float32)
            return cls(rope["rope_theta"] ** (-steps / architecture.head_dim), 1.0, dtype)
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
        return cls(frequencies, float(scale), dtype)

    def recast(self, dtype: torch.dtype) -> Rotary:
        """The same frequencies, tables in another type."""
        twin = Rotary(self._frequencies, self._scale, dtype)
        twin._device = self._device
        return twin

    def on(self, device: torch.device, positions: int = 0) -> Rotary:
        """The same frequencies with tables on ``device``.

        With ``positions`` they are made for so many once and for all: they never move, and a
        look-up asks nothing of the host. Drafted rows behind the last, which cannot be committed,
        stand at the last.
        """
        twin = self.recast(self._dtype)
        twin._device = device
        if positions:
            twin._grow(positions)
            twin._whole = True
        return twin

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Look the positions up, growing the tables when they are new."""
        if self._whole:
            cos, sin = self._cos, self._sin
            positions = positions.clamp(max=len(cos) - 1)
        else:
            cos, sin = self.tables(int(positions.max()) + 1)
        index = positions.to(cos.device)
        return cos[index][:, None], sin[index][:, None]

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of at least the positions ``0..length-1``, ``[positions, d]`` each."""
        if length > len(self._cos):
            self._grow(max(length, 2 * len(self._cos), 512))
        return self._cos, self._sin

    def _grow(self, length: int) -> None:
        angles = torch.outer(torch.arange(length, dtype=torch.float32), self._frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        self._cos = (angles.cos() * self._scale).to(self._device, self._dtype)
        self._sin = (angles.sin() * self._scale).to(self._device, self._dtype)
