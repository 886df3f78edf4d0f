"""The packages we declare, by extra, and which of them are here. Imports nothing heavy."""

from __future__ import annotations

import importlib.metadata
import re


def declared() -> dict[str, list[str]]:
    """Names of our dependencies by extra; the core is ``""``.

    >>> "torch" in declared()[""], "accelerate" in declared()["train"]
    (True, True)
    """
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("breakeven") or ():
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra == [\"'](\w+)", line)
        if name is not None and name[0] != "breakeven":
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def version(distribution: str) -> str | None:
    """The installed version, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def remedy(module: str) -> str:
    """The command that brings a missing top-level module.

    >>> remedy("accelerate.utils")
    "pip install 'breakeven[train]'"
    >>> remedy("absent")
    'pip install absent'
    """
    package = module.split(".")[0]
    for extra, names in declared().items():
        if package in (name.lower().replace("-", "_") for name in names):
            return f"pip install 'breakeven{f'[{extra}]' if extra else ''}'"
    return f"pip install {package}"
