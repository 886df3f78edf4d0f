"""Trained drafters that ship with the project: ``assets/<verifier>/drafters/<name>``.

They are found by the weights they were trained for, so a copy of the bundled verifier under
another name has them, too.
"""

from __future__ import annotations

from pathlib import Path

import breakeven
from breakeven.drafters.card import Card
from breakeven.verifier.identity import Identity

ASSETS = Path(breakeven.__file__).parents[2] / "assets"


def shipped_folder(name: str, identity: Identity, assets: Path = ASSETS) -> Path | None:
    """The folder of a shipped drafter for this verifier; None where there is none."""
    for folder in sorted(assets.glob(f"*/drafters/{name}")):
        trained_for = Card.read(folder, name, None).verifier
        if trained_for is not None and trained_for.weights_sha256 == identity.weights_sha256:
            return folder
    return None
