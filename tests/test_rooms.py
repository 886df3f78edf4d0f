"""The rooms keep their order, and the code keeps the shape that makes it readable.

Read from the source with ``ast``: nothing is imported. The map is docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.measure.packages import declared

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "breakeven"
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = sorted(SOURCE.rglob("*.py"))
GROUND = {"core", "errors", "config", "counting", "files", "progress"}
"""Modules that every room may use."""

KNOWS = {
    "cost": set(),
    "verifier": {"cost"},
    "drafters": {"cost", "verifier"},
    "decode": {"cost", "verifier", "drafters"},
    "data": {"cost", "verifier", "drafters", "decode"},
    "train": {"cost", "verifier", "drafters", "decode", "data"},
    "measure": {"cost", "verifier", "drafters", "decode", "data"},
    "ablation": {"cost", "verifier", "drafters", "decode", "data", "train", "measure"},
    "report": {"cost", "measure"},
    "paper": {
        "cost",
        "verifier",
        "drafters",
        "decode",
        "data",
        "train",
        "measure",
        "report",
    },
}
"""Room -> rooms it may import."""

IMPORTED_AS = {"yaml": "pyyaml"}
BEHIND_ANOTHER = {"gguf", "tensorboard", "wandb"}
"""Dependencies that transformers and torch import for us, or that are imported by name."""


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that ``path`` imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{named(path)}: write absolute imports"
            yield str(node.module)
            if node.module == "breakeven":
                names = {alias.name for alias in node.names} - {"__version__"}
                yield from (f"breakeven.{name}" for name in names)


def is_public(node: ast.AST) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, kinds) and not node.name.startswith("_")


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public functions and classes, and the public methods of those classes."""
    for node in filter(is_public, body):
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from public(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_room_imports_only_what_lies_below_it(path: Path) -> None:
    room = room_of(path)
    if room in ("cli", "__main__"):
        return
    allowed = GROUND | KNOWS.get(room, set()) | {room}
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("breakeven.")}
    assert ours <= allowed, f"{named(path)} may not import {ours - allowed}"


def test_the_map_shows_the_rooms_as_they_are() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([^|]*)\|$", MAP, re.MULTILINE)
    drawn = {room: set(re.findall(r"`(\w+)`", knows)) for room, knows in rows}
    assert drawn.pop("cli") == set()
    assert drawn == KNOWS
    assert {*drawn, "cli"} == {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_the_files_on_the_map_exist() -> None:
    lost = [name for name in re.findall(r"`([\w/]+\.py)`", MAP) if not (SOURCE / name).exists()]
    assert [name for name in lost if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_import_is_a_declared_dependency(path: Path) -> None:
    names = {name.lower().replace("-", "_") for group in declared().values() for name in group}
    for module in {name.split(".")[0] for name in imports(path)}:
        if module not in sys.stdlib_module_names and module != "breakeven":
            package = IMPORTED_AS.get(module, module).lower()
            assert package in names, f"{named(path)} imports {module}; add it to pyproject.toml"


def test_every_declared_dependency_is_used() -> None:
    imported = {name.split(".")[0] for path in FILES for name in imports(path)}
    used = {IMPORTED_AS.get(module, module) for module in imported} | BEHIND_ANOTHER
    for extra in set(declared()) - {"dev", "docs"}:
        assert {name.replace("-", "_") for name in declared()[extra]} <= used


@pytest.mark.parametrize("room", ["core.py", "errors.py", "cost"])
def test_the_ground_floor_needs_only_the_standard_library(room: str) -> None:
    for path in [p for p in FILES if p.relative_to(SOURCE).parts[0] == room]:
        foreign = {m.split(".")[0] for m in imports(path)} - sys.stdlib_module_names
        assert foreign <= {"breakeven"}, f"{named(path)} is pure arithmetic, without {foreign}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400, "split the file: one idea each"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{named(path)}: {node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_public_name_has_a_docstring(path: Path) -> None:
    module = ast.parse(path.read_text())
    said = ast.get_docstring(module) or "TODO"
    assert not said.startswith("TODO"), f"{named(path)}: say what the module is"
    silent = [name for name, node in public(module.body) if not ast.get_docstring(node)]
    assert not silent, f"{named(path)}: no docstring on {', '.join(silent)}"


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils.py", "helpers.py", "misc.py", "common.py"}
    assert not [named(path) for path in FILES if path.name in drawers]


def test_the_median_file_is_short() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in FILES)
    assert lengths[len(lengths) // 2] <= 120
