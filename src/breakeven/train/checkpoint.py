"""Checkpoints that a kill cannot break: one file, written aside and moved into place.

``latest.pt`` holds everything a run needs to go on as if nothing had happened: weights,
optimizer, the step (which determines the rows, the random numbers and the learning rate) and
what has been counted. ``best.pt`` holds the weights with the best real acceptance.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import TrainingError


@dataclass(slots=True)
class Counts:
    """What a run has done so far."""

    step: int = 0
    elapsed_s: float = 0.0
    tokens: int = 0
    labels: int = 0
    best: float = -1.0  # best real acceptance length, -1 before the first evaluation
    best_step: int = 0


def write(path: Path, content: dict[str, Any]) -> None:
    """Save ``content`` so that ``path`` is always a whole file, the old one or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    try:
        with aside.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any] | None:
    """What :func:`write` saved, or None when there is nothing yet."""
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds on a damaged file
        reason = " ".join(str(error).split())[:120]
        raise TrainingError(
            f"{path}: cannot be read ({reason}); delete it and run again with --force"
        ) from None
    return content
