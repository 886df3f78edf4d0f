"""Prompts from local JSONL files, one record per line, in the formats people have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import NonNegativeInt

from breakeven.config import Section
from breakeven.counting import counted
from breakeven.data.categories import categorise
from breakeven.data.prompt import Prompt, Tally, is_text
from breakeven.data.sources.conversation import BadRecord, opening
from breakeven.errors import DataError


class JsonlSettings(Section):
    """``paths``: files to read; ``limit``: at most so many prompts of each file, 0 for all."""

    paths: tuple[str, ...] = ()
    limit: NonNegativeInt = 0

    @property
    def wanted(self) -> bool:
        """Whether the recipe asks for this source at all."""
        return bool(self.paths)


@dataclass(slots=True)
class Jsonl:
    """Reads each file line by line; broken lines go to ``<name>_error.jsonl`` in ``errors``.

    A line is broken when it is not UTF-8, not JSON, or holds no prompt. Blank lines are skipped.
    Raises :class:`DataError` when a file is missing or has not one good line.
    """

    settings: JsonlSettings
    errors: Path | None = None
    name: str = field(default="jsonl", init=False)

    def prompts(self, tally: Tally) -> Iterator[Prompt]:
        """Prompts in file order; ids are ``<file>-<line number>``."""
        for path in self.settings.paths:
            yield from self._file(Path(path), tally)

    def _file(self, path: Path, tally: Tally) -> Iterator[Prompt]:
        kept, broken = 0, []
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if not line.strip():
                        continue
                    try:
                        yield _prompt(line, f"{path.stem}-{number:06d}")
                        kept += 1
                    except BadRecord as reason:
                        broken.append({"line": number, "reason": str(reason), "text": _show(line)})
                        tally.dropped[str(reason)] += 1
                    if kept == self.settings.limit > 0:
                        break
        except OSError as error:
            problem = (error.strerror or "unreadable").lower()
            raise DataError(f"{path}: {problem}; give a JSONL file of prompts") from None
        if broken:
            self._report(path, broken, tally)
        if not kept:
            why = (
                f"broken: {counted(len(broken), 'line')}, the first: {broken[0]['reason']}"
                if broken
                else "empty"
            )
            raise DataError(
                f"{path}: no prompt in it ({why}); a line looks like "
                '{"prompt": "..."} or {"messages": [...]}'
            )

    def _report(self, path: Path, broken: list[dict[str, object]], tally: Tally) -> None:
        if self.errors is None:
            return
        target = self.errors / f"{path.stem}_error.jsonl"
        self.errors.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(json.dumps(entry) + "\n" for entry in broken))
        tally.notes.append(
            f"broken in {path.name}: {counted(len(broken), 'line')}, kept in {target}"
        )


def _prompt(line: bytes, name: str) -> Prompt:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise BadRecord("not UTF-8") from None
    except ValueError:
        raise BadRecord("not JSON") from None
    except RecursionError:
        raise BadRecord("nested too deeply") from None
    messages = opening(record)
    category = record.get("category")
    if not isinstance(category, str) or not category.strip() or not is_text(category):
        category = categorise(messages[-1].content)
    return Prompt(name, category, messages)


def _show(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").strip()[:500]
