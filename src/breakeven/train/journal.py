"""What training writes while it runs: ``metrics.jsonl`` and, where installed, TensorBoard."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"


class Journal:
    """Appends one JSON object per entry; numbers also go to TensorBoard.

    Entries after ``resumed_step`` belong to steps that will be done again and are dropped.
    """

    def __init__(self, folder: Path, resumed_step: int = 0, *, tensorboard: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / METRICS_FILE
        kept = [entry for entry in entries(self._path) if entry["step"] <= resumed_step]
        self._path.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
        self._board: Any = None
        if tensorboard and importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_step)

    def write(self, step: int, **values: Any) -> None:
        """One entry; it is on disk when this returns."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            if self._board is not None and isinstance(value, float):
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish what TensorBoard has buffered."""
        if self._board is not None:
            self._board.close()


def entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics file; a half-written last line is left out."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
