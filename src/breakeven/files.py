"""Files that are whole or not there: written aside, then moved into place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8; an existing file is replaced in one step.

    A kill leaves the old file as it was, an error (a full disk) nothing of the new one either.
    Makes the folder if there is none. Half a surrogate pair, which JSON can hold and UTF-8 cannot,
    becomes a question mark.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name[:60]}.partial")  # within the 255 bytes of a name
    try:
        unfinished.write_text(text, encoding="utf-8", errors="replace")
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """The value in a JSON file; whatever is wrong with its text is a ``ValueError``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
