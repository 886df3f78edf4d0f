"""Where the numbers of a run go besides ``metrics.jsonl``: TensorBoard, Weights & Biases."""

from __future__ import annotations

import importlib
import importlib.util
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from breakeven.errors import TrainingError

TrackerName = Literal["tensorboard", "wandb"]
WANDB_ID_FILE = "wandb_id"


class Tracker(Protocol):
    """A place that draws curves."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """The numbers of one step."""
        ...

    def close(self) -> None:
        """Finish what is buffered."""
        ...


class TensorBoard:
    """Event files in ``tensorboard/``."""

    def __init__(self, folder: Path, resumed_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_step)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One scalar per name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class Wandb:
    """A run in project ``breakeven`` (``WANDB_PROJECT`` names another), named like the output
    folder, its files in ``wandb/``; it goes on when training is resumed."""

    def __init__(self, folder: Path, resumed_step: int) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._run: Any = wandb.init(
            name=folder.absolute().parent.name,
            dir=str(folder),
            id=_run_id(folder),
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", "breakeven"),
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """All numbers of the step together."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Mark the run as finished."""
        self._run.finish()


def _run_id(folder: Path) -> str:
    """The same for all starts of one training."""
    file = folder / WANDB_ID_FILE
    if not file.is_file():
        file.write_text(uuid.uuid4().hex[:12])
    return file.read_text()


KINDS: dict[str, Callable[[Path, int], Tracker]] = {"tensorboard": TensorBoard, "wandb": Wandb}


def check_trackers(names: Sequence[TrackerName]) -> None:
    """Raise :class:`TrainingError` when one that was asked for is not installed.

    TensorBoard is the default and is left out silently.
    """
    if "wandb" in names and importlib.util.find_spec("wandb") is None:
        raise TrainingError(
            "train.trackers: wandb is not installed; run: pip install wandb, or leave it out"
        )


def open_trackers(
    names: Sequence[TrackerName], folder: Path, resumed_step: int = 0
) -> list[Tracker]:
    """The trackers of a run whose state is in ``folder``."""
    check_trackers(names)
    return [KINDS[name](folder, resumed_step) for name in names if importlib.util.find_spec(name)]
