"""``configuration.json``: what a benchmark run measures, on what, with which command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import breakeven
from breakeven.drafters.base import Drafter
from breakeven.errors import DataError, OutputExistsError, RecipeError
from breakeven.measure.configuration import PLAIN, Configuration
from breakeven.measure.definitions import DEFINITIONS
from breakeven.measure.machine import machine_facts
from breakeven.measure.prompts import Prompt, fingerprint
from breakeven.measure.results import write_json
from breakeven.measure.trial import Method
from breakeven.verifier.load import Loaded

FILE = "configuration.json"
RECORDS = "requests.jsonl"
TABLES = (RECORDS, "acceptance.csv", "performance.csv", "cost_curve.csv", "verdict.json")
"""What a run that is started over removes first."""
BESIDE = ("audit.json", "audit.yaml", "report.html", ".*.partial")
"""What other verbs, or a run that was killed, may leave where a run is to begin."""

PINNED = (
    "verifier.weights_sha256", "split", "prompts", "prompts_sha256", "repeats", "max_new_tokens",
    "seed", "mode", "configurations", "machine.cpu", "machine.threads", "machine.gpu",
    "machine.torch", "breakeven",
)  # fmt: skip
"""Fields that a resumed run must share with the one it continues."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a benchmark run was asked to do."""

    prompts: Sequence[Prompt]
    configurations: Sequence[Configuration]
    repeats: int = 3
    max_new_tokens: int = 128
    seed: int = 0
    artifact: str = ""
    split: str = "test"
    command: str = ""

    def __post_init__(self) -> None:
        for name in ("repeats", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} = {getattr(self, name)}: give 1 or more")
        if not self.prompts:
            raise RecipeError("no prompts to measure on: give at least one")

    @property
    def trials(self) -> int:
        """Prompts decoded in all, plain decoding included."""
        return len(self.prompts) * (len(self.configurations) + 1) * self.repeats

    def describe(self, loaded: Loaded, methods: Sequence[Method]) -> dict[str, Any]:
        """The content of ``configuration.json`` at the start of the run."""
        drafters = {method.name: method.drafter for method in methods}
        return {
            "kind": "bench",
            "breakeven": breakeven.__version__,
            "command": self.command,
            "verifier": {
                "name": loaded.identity.name,
                "weights_sha256": loaded.identity.weights_sha256,
            },
            "artifact": self.artifact,
            "split": self.split,
            "prompts": len(self.prompts),
            "prompts_sha256": fingerprint(self.prompts),
            "categories": sorted({p.category for p in self.prompts}),
            "repeats": self.repeats,
            "max_new_tokens": self.max_new_tokens,
            "seed": self.seed,
            "mode": loaded.verifier.mode,
            "dtype": str(loaded.verifier.dtype).removeprefix("torch."),
            "machine": machine_facts(),
            "configurations": [
                {"name": PLAIN, "drafter": None, "k": 0},
                *(_entry(c, drafters[c.name]) for c in self.configurations),
            ],
            "definitions": DEFINITIONS,
            "warnings": [],
        }


def _entry(configuration: Configuration, drafter: Drafter | None) -> dict[str, Any]:
    """One configuration, with what its drafter says of itself."""
    return {
        "name": configuration.name,
        "drafter": configuration.drafter,
        "k": configuration.k,
        "policy": configuration.policy,
        "path": configuration.folder,
        "options": dict(configuration.options),
        "free": drafter.free if drafter else 0,
        "passes": "sequential" if drafter and drafter.sequential else "block",
        "layout": dict(drafter.layout) if drafter else {},
    }


def open_folder(
    out: Path, description: dict[str, Any], *, resume: bool = False, force: bool = False
) -> dict[str, Any]:
    """Make ``out`` ready and return its description: the old one when a run is continued.

    Raises :class:`OutputExistsError` where something stands in the way and
    :class:`RecipeError` where the run to be continued was another one.
    """
    begun = (out / RECORDS).exists() or (out / FILE).exists()
    if not begun and out.is_dir() and not all(any(map(p.match, BESIDE)) for p in out.iterdir()):
        raise OutputExistsError(f"{out} holds other files: give another --out")
    if (out / RECORDS).exists() and not (force or resume):
        raise OutputExistsError(
            f"{out} holds a benchmark run: --resume continues it, --force starts over"
        )
    if force and begun:
        for name in TABLES:
            (out / name).unlink(missing_ok=True)
    if (out / RECORDS).exists():
        found = read_description(out)
        compare(found, description, out)
        return found
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / FILE, description)
    return description


def recorded_layouts(out: Path) -> dict[str, dict[str, Any]]:
    """The layout of each configuration of the run that was begun in ``out``; none without a run.

    A drafter that chooses it by the prices of passes may choose another when it is loaded again, so
    a run that goes on takes what it began with.
    """
    if not (out / RECORDS).exists():
        return {}
    entries = read_description(out).get("configurations")
    return {
        str(entry.get("name")): layout
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(layout := entry.get("layout"), dict)
    }


def read_description(out: Path) -> dict[str, Any]:
    """Read ``configuration.json``; a missing or broken one is a :class:`DataError`."""
    try:
        found = json.loads((out / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{out / FILE}: cannot be read ({error}); use --force to start over"
        ) from None
    if not isinstance(found, dict):
        raise DataError(f"{out / FILE}: not a run's description; use --force to start over")
    return found


def compare(found: Mapping[str, Any], wanted: Mapping[str, Any], out: Path) -> None:
    """Refuse to continue a run whose :data:`PINNED` fields differ, naming the first."""
    for field in PINNED:
        old, new = at(found, field), at(wanted, field)
        if old != new:
            raise RecipeError(
                f"{out} was measured with {field} = {brief(old)}, now it is {brief(new)}: "
                "give the same again, or --force to start over"
            )


def at(tree: Mapping[str, Any], field: str) -> Any:
    """The value of a dotted field, None where there is none."""
    value: Any = tree
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def brief(value: Any) -> str:
    """A value as an error shows it."""
    if isinstance(value, list):
        return ", ".join(str(v.get("name", v)) if isinstance(v, dict) else str(v) for v in value)
    return str(value)
