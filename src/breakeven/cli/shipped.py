"""Find what ships beside the package: recipes and the artifact of the bundled verifier."""

from __future__ import annotations

from pathlib import Path

import breakeven
from breakeven.errors import DataError


def shipped(path: Path) -> Path:
    """``path`` in the current folder, else in the checkout the package runs from.

    Raises :class:`DataError` when it is in neither.
    """
    if path.is_absolute() or path.exists():
        return path
    checkout = Path(breakeven.__file__).parents[2] / path
    if checkout.exists():
        return checkout
    raise DataError(f"{path}: not here; run the command in the project's folder, or give the path")
