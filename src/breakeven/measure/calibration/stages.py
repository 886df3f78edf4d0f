"""What a calibration has measured so far, stage by stage: a stopped one goes on after it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven import __version__
from breakeven.errors import DataError
from breakeven.files import write_whole
from breakeven.measure.machine import machine_facts
from breakeven.verifier.load import Loaded

FOLDER = "stages"
FLEETING = ("load_1m_start", "load_1m_end")
"""Facts of the machine that differ from minute to minute."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stages:
    """Finished stages, each a file ``FOLDER/<name>.json``; ``folder`` None keeps nothing.

    A stage is used again when it was measured in the same ``setting`` (machine, model, version)
    and for the same ``wanted``; otherwise it is measured anew, and the reason is said.
    """

    folder: Path | None
    setting: Mapping[str, Any]

    def of(self, name: str, wanted: Mapping[str, Any], measure: Callable[[], Row]) -> Row:
        """The content of a stage: what an earlier run stored, or what ``measure`` finds now."""
        key = json.loads(json.dumps({**self.setting, **wanted}))
        found = self._stored(name, key)
        if found is None:
            found = json.loads(json.dumps(measure()))
            self._store(name, {"key": key, "content": found})
        assert found is not None
        return found

    def _stored(self, name: str, key: Row) -> Row | None:
        if self.folder is None:
            return None
        try:
            stored: Row = json.loads(self._file(name).read_text(encoding="utf-8"))
            before, content = stored["key"], stored["content"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            _say(f"{name}: what is stored cannot be read; measured anew")
            return None
        other = [field for field in key if before.get(field) != key[field]]
        if other:
            _say(f"{name}: stored for another {', '.join(other)}; measured anew")
            return None
        _say(f"{name}: measured by the run before, not repeated")
        return dict(content)

    def _store(self, name: str, stored: Row) -> None:
        if self.folder is None:
            return
        write_whole(self._file(name), json.dumps(stored) + "\n")

    def _file(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.json"

    def clear(self) -> None:
        """Remove what is stored."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def setting_of(loaded: Loaded) -> Row:
    """What a measurement holds for: the machine, the model's weights, how they run, the version."""
    facts = {k: v for k, v in machine_facts().items() if k not in FLEETING}
    verifier = loaded.verifier
    return {
        "machine": facts,
        "model": loaded.identity.weights_sha256,
        "mode": verifier.mode,
        "dtype": str(verifier.dtype),
        "version": __version__,
    }


def finished(out: Path) -> list[str]:
    """The stages that a stopped run has left in an output folder, by name."""
    return sorted(path.stem for path in (out / FOLDER).glob("*.json"))


def require_room(out: Path) -> None:
    """Raise :class:`DataError` where ``out`` cannot be a folder to write in; changes nothing."""
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not place.is_dir():
        raise DataError(f"{place}: is a file; give another --out")
    if not os.access(place, os.W_OK | os.X_OK):
        raise DataError(f"{place}: may not be written to; give another --out")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
