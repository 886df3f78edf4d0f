"""Artifacts: prompts and the verifier's continuations as Parquet shards beside a contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from breakeven.core import Finish
from breakeven.counting import counted
from breakeven.data.contract import Contract
from breakeven.errors import DataError, nearest

if TYPE_CHECKING:
    from breakeven.verifier.identity import Identity

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("category", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("continuation_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
    ]
)
SHARD_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt and what the verifier answered, as token ids.

    The end-of-sequence id is part of ``continuation_ids`` when ``finish_reason`` is stop.
    """

    id: str
    category: str
    prompt_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]
    finish_reason: Finish


@dataclass(slots=True)
class Artifact:
    """An artifact on disk; rows are read when asked for and kept."""

    path: Path
    contract: Contract
    shards: dict[str, list[Path]]
    _rows: dict[str, list[Row]] = field(default_factory=dict)

    def rows(self, split: str) -> list[Row]:
        """The rows of ``train``, ``validation`` or ``test``, by id. Raises :class:`DataError`."""
        if split not in self.shards:
            raise DataError(f"{self.path}: no split '{split}'; {nearest(split, self.shards)}")
        if split not in self._rows:
            rows = [row for shard in self.shards[split] for row in _read(shard)]
            if not rows:
                raise DataError(
                    f"{self.path}: split '{split}' is empty; raise split.{split} in the recipe and "
                    "prepare the artifact again"
                )
            self._rows[split] = rows
        return self._rows[split]


def load_artifact(path: Path | str, identity: Identity | None = None) -> Artifact:
    """Open an artifact and check that it is whole and, with ``identity``, of that verifier.

    Raises :class:`DataError` in one line for a missing, half-written or truncated artifact, and
    for a verifier that does not match, naming the field.
    """
    folder = Path(path)
    contract = Contract.read(folder)
    if identity is not None:
        contract.check(identity, folder)
    shards = {}
    for split, expected in contract.splits.items():
        shards[split] = sorted(folder.glob(f"{split}-*.parquet"))
        found = sum(_count(shard) for shard in shards[split])
        if found != expected:
            raise DataError(
                f"{folder}: split '{split}' has {counted(found, 'row')} in "
                f"{counted(len(shards[split]), 'file')}, the "
                f"contract says {expected}; a file is missing, copy the artifact again"
            )
    return Artifact(folder, contract, shards)


def write_artifact(folder: Path, splits: Mapping[str, Sequence[Row]], contract: Contract) -> None:
    """Write shards (zstd), then the contract; older shards of the folder are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        for stale in folder.glob(f"{split}-[0-9]*.parquet"):
            stale.unlink()
        for number, start in enumerate(range(0, max(1, len(rows)), SHARD_ROWS)):
            target = folder / f"{split}-{number:05d}.parquet"
            fresh = target.with_suffix(".new")
            pq.write_table(_table(rows[start : start + SHARD_ROWS]), fresh, compression="zstd")
            fresh.replace(target)
    contract.write(folder)


def _table(rows: Sequence[Row]) -> pa.Table:
    columns = [[getattr(row, name) for row in rows] for name in SCHEMA.names]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def _count(shard: Path) -> int:
    try:
        metadata = pq.read_metadata(shard)
        missing = set(SCHEMA.names) - set(metadata.schema.to_arrow_schema().names)
    except (pa.ArrowException, OSError) as error:
        raise _broken(shard, error) from None
    if missing:
        raise DataError(f"{shard}: no column {sorted(missing)[0]}; this is not an artifact's shard")
    return int(metadata.num_rows)


def _read(shard: Path) -> list[Row]:
    try:
        records = pq.read_table(shard, schema=SCHEMA).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise _broken(shard, error) from None
    return [
        Row(
            r["id"],
            r["category"],
            tuple(r["prompt_ids"]),
            tuple(r["continuation_ids"]),
            Finish(r["finish_reason"]),
        )
        for r in records
    ]


def _broken(shard: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:120]
    return DataError(
        f"{shard}: truncated or corrupt ({reason}); copy the artifact again or remake it with "
        "`breakeven prepare`"
    )
