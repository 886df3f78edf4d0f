"""Reading and writing result files: whole or not at all, NaN as an empty cell or ``null``."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from breakeven.files import write_whole


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON; an existing file is replaced in one step."""
    write_whole(path, json.dumps(finite(value), indent=2, ensure_ascii=False) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows under one header: the columns of all rows, in order of appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    write_whole(path, text.getvalue())


def _cell(value: Any) -> Any:
    """Numbers to six significant digits, unknown ones as nothing."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return value


def finite(value: Any) -> Any:
    """The same tree with None for every number that is not finite, as JSON wants it."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
    return value
