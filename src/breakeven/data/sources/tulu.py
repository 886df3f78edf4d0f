"""Prompts of the Tulu 3 mixture (``allenai/tulu-3-sft-mixture``), or of a file of its schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from breakeven.config import Section, Seed
from breakeven.data.categories import categorise
from breakeven.data.prompt import Prompt, Tally
from breakeven.data.sources.conversation import BadRecord, opening
from breakeven.errors import DataError

HUB = "allenai/tulu-3-sft-mixture"
_FROM_SOURCE = {"math": "maths", "gsm": "maths", "code": "code", "table": "extraction"}
_FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}


class TuluSettings(Section):
    """``count`` prompts (0: none) of ``path``: the hub's name, or a local Parquet/JSON file.

    Rows are taken after a seeded shuffle of a buffer of ``shuffle`` rows (0: in order).
    """

    count: NonNegativeInt = 0
    path: str = HUB
    shuffle: NonNegativeInt = 10_000
    seed: Seed = 0

    @property
    def wanted(self) -> bool:
        """Whether the recipe asks for this source at all."""
        return self.count > 0


@dataclass(slots=True)
class Tulu:
    """Streams rows ``{id, messages, source}``: the user's turns up to the first answer."""

    settings: TuluSettings
    name: str = field(default="tulu", init=False)

    def prompts(self, tally: Tally) -> Iterator[Prompt]:
        """Prompts in the order of the stream. Ids are ``tulu-<row>-<the row's own id>``."""
        kept = 0
        for number, record in enumerate(self._stream()):
            if kept == self.settings.count:
                return
            try:
                messages = opening(record)
            except BadRecord as reason:
                tally.dropped[str(reason)] += 1
                continue
            kept += 1
            source = str(record.get("source", ""))
            category = next((c for word, c in _FROM_SOURCE.items() if word in source), None)
            name = f"tulu-{number:06d}-{record.get('id', '')}"
            yield Prompt(name, category or categorise(messages[-1].content), messages)
        if not kept:
            raise DataError(
                f"{self.settings.path}: no usable row; the schema is id, messages, source"
            )

    def _stream(self) -> Iterator[dict[str, Any]]:
        from datasets import load_dataset

        s = self.settings
        form = _FORMATS.get(Path(s.path).suffix)
        try:
            if form is not None:
                if not Path(s.path).is_file():
                    raise DataError(f"{s.path}: no such file; give a Parquet or JSON file")
                stream = load_dataset(form, data_files=s.path, split="train", streaming=True)
            else:
                stream = load_dataset(s.path, split="train", streaming=True)
            if s.shuffle:
                stream = stream.shuffle(seed=s.seed, buffer_size=s.shuffle)
            yield from stream
        except DataError:
            raise
        except Exception as error:  # the hub, the network and the readers raise many kinds
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise DataError(
                f"sources.tulu.path: '{s.path}' cannot be read ({reason}); check the network, or "
                "give a local Parquet file with columns id, messages, source"
            ) from None
