"""One line of ``requests.jsonl``: one prompt decoded once in one configuration.

Lines are appended and flushed as they are measured, so a killed run loses at most the line it
was writing; reading cuts such a torn line off.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, ValidationError

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.request import Completion
from breakeven.errors import DataError
from breakeven.measure.prompts import Prompt

Key = tuple[str, int, str]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]  # differences of clocks may be just below 0


@dataclass(frozen=True, slots=True)
class Record:
    """The account of one request; times in seconds, counts before truncation but ``committed``.

    ``tokens`` counts all new tokens, the first (which prefill gives) included. Plain decoding's
    passes are its rounds: nothing drafted, one token committed by each.
    """

    config: str
    repeat: Count
    id: str
    category: str
    prompt_tokens: Count
    tokens: Count
    finish: str
    prefill_s: Annotated[Seconds, Field(ge=0)]
    decode_s: Annotated[Seconds, Field(gt=0)]
    draft_s: Seconds
    verify_s: Annotated[Seconds, Field(ge=0)]
    other_s: Seconds
    rounds: Count
    drafted: Count
    accepted: Count
    committed: Count
    accepted_histogram: tuple[Count, ...]
    drafted_histogram: tuple[Count, ...]
    token_ids: tuple[Count, ...] | None = None

    @property
    def key(self) -> Key:
        """What makes a record unique in a run."""
        return self.config, self.repeat, self.id

    @classmethod
    def of(
        cls, config: str, repeat: int, prompt: Prompt, completion: Completion, ledger: Ledger
    ) -> Record:
        """The record of a completion decoded alone, with ``ledger`` of its own."""
        first = ledger.passes[0]
        assert first.phase is Phase.PREFILL, "a request starts with its prompt"
        prefill = first.seconds  # later prefill passes are the drafter's own start-up
        bought = sum(p.seconds for p in ledger.passes)
        verify = ledger.seconds(Phase.PLAIN) + ledger.seconds(Phase.VERIFY)
        plain = len(completion.tokens) - 1 if not ledger.rounds else 0
        accepted = [r.accepted for r in ledger.rounds] + [0] * plain
        drafted = [r.drafted for r in ledger.rounds] + [0] * plain
        return cls(
            config=config,
            repeat=repeat,
            id=prompt.id,
            category=prompt.category,
            prompt_tokens=len(prompt.prompt_ids),
            tokens=len(completion.tokens),
            finish=str(completion.finish),
            prefill_s=prefill,
            decode_s=ledger.wall_s - prefill,
            draft_s=bought - prefill - verify,
            verify_s=verify,
            other_s=ledger.other_s,
            rounds=len(accepted),
            drafted=sum(drafted),
            accepted=sum(accepted),
            committed=ledger.committed + plain,
            accepted_histogram=histogram(accepted),
            drafted_histogram=histogram(drafted),
            token_ids=tuple(completion.tokens) if repeat == 0 else None,
        )

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Parse one line; ``ValueError`` if it is torn or not a record. Unknown fields are left."""
        try:
            record = LINE.validate_json(line, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]
            field = ".".join(map(str, problem["loc"]))
            raise ValueError(": ".join(filter(None, (field, problem["msg"])))) from None
        if record.tokens > 1 and not record.rounds:
            raise ValueError(f"rounds: 0 for {record.tokens} tokens")
        return record

    def to_line(self) -> str:
        """The record as one line of JSON; ``token_ids`` only where they are kept."""
        row = asdict(self)
        if self.token_ids is None:
            del row["token_ids"]
        return json.dumps(row, separators=(",", ":"))


LINE = TypeAdapter(Record)


def histogram(values: Iterable[int]) -> tuple[int, ...]:
    """How often 0, 1, … occur.

    >>> histogram([0, 2, 2])
    (1, 0, 2)
    """
    counts = Counter(values)
    return tuple(counts[value] for value in range(max(counts, default=-1) + 1))


class RecordFile:
    """``requests.jsonl`` open for appending; what it held before is in :attr:`records`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        if path.exists():
            self.records = read_records(path)
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._file = path.open("a", encoding="utf-8")

    def append(self, record: Record) -> None:
        """Write one record and hand it to the system at once."""
        self._file.write(record.to_line() + "\n")
        self._file.flush()
        self.records.append(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_records(path: Path) -> list[Record]:
    """All whole records; a torn last line is left out, a broken one elsewhere is an error."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); run `breakeven bench`"
        ) from None
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(Record.from_line(line.decode()))
        except ValueError as error:
            raise DataError(
                f"{path}: line {number} is not a record ({error}); use --force to start over"
            ) from None
    return records
