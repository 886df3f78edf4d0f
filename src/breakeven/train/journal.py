"""What training writes while it runs: ``metrics.jsonl``, and the trackers the recipe names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from breakeven.files import write_whole
from breakeven.train.trackers import TrackerName, open_trackers

METRICS_FILE = "metrics.jsonl"


class Journal:
    """Appends one JSON object per entry; its numbers also go to the trackers.

    Entries after ``resumed_step`` belong to steps that will be done again and are dropped.
    """

    def __init__(
        self,
        folder: Path,
        resumed_step: int = 0,
        *,
        trackers: Sequence[TrackerName] = ("tensorboard",),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / METRICS_FILE
        kept = [entry for entry in entries(self._path) if entry["step"] <= resumed_step]
        write_whole(self._path, "".join(json.dumps(entry) + "\n" for entry in kept))
        self._trackers = open_trackers(trackers, folder, resumed_step)

    def write(self, step: int, split: str, **values: Any) -> None:
        """One entry; it is on disk when this returns. Trackers see ``split/name``."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "split": split, **values}) + "\n")
        numbers = {f"{split}/{k}": v for k, v in values.items() if isinstance(v, float)}
        for tracker in self._trackers:
            tracker.log(numbers, step)

    def close(self) -> None:
        """Finish what the trackers have buffered."""
        for tracker in self._trackers:
            tracker.close()


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
