"""The card of a drafter's folder: which method, for which verifier, with which settings.

``drafter.json`` stands beside the weights. A drafter is of use to one verifier only, so the card
carries that verifier's identity and loading checks it first.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.errors import DrafterError
from breakeven.files import read_json, write_whole
from breakeven.verifier.identity import Identity

CARD_FILE = "drafter.json"
MOST = 10_000_000
"""The largest number on a card: a vocabulary's size."""


@dataclass(frozen=True, slots=True)
class Card:
    """``settings`` are the method's own; ``verifier`` is None for throw-away test models."""

    drafter: str
    verifier: Identity | None
    settings: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write ``drafter.json``."""
        text = json.dumps(dataclasses.asdict(self), indent=2)
        write_whole(folder / CARD_FILE, text + "\n")

    @classmethod
    def read(cls, folder: Path, drafter: str, verifier: Identity | None) -> Card:
        """Read the card in ``folder``; :class:`DrafterError` unless it is ``drafter``'s.

        With a ``verifier`` its weights must be those the drafter was trained for.
        """
        path = folder / CARD_FILE
        if not path.is_file():
            raise DrafterError(f"{folder}: no {CARD_FILE}; give a folder written by 'train'")
        try:
            tree = read_json(path)
            owner = Identity(**tree["verifier"]) if tree["verifier"] else None
            if owner and not all(isinstance(v, str) for v in dataclasses.astuple(owner)):
                raise ValueError("a verifier's name and hashes are texts")
            card = cls(str(tree["drafter"]), owner, dict(tree["settings"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DrafterError(f"{path}: not a drafter's card ({error}); train it again") from None
        if card.drafter != drafter:
            raise DrafterError(f"{folder}: holds a '{card.drafter}' drafter, not '{drafter}'")
        card._check(folder, verifier)
        return card

    def _check(self, folder: Path, verifier: Identity | None) -> None:
        owner = self.verifier
        if verifier is None or owner is None or owner.weights_sha256 == verifier.weights_sha256:
            return
        raise DrafterError(
            f"{folder}: trained for verifier '{owner.name}' (weights {owner.weights_sha256[:8]}), "
            f"but this verifier is '{verifier.name}' (weights {verifier.weights_sha256[:8]}); "
            "train a drafter for it, or load the verifier it was trained for"
        )

    def setting(self, folder: Path, name: str) -> Any:
        """One of the settings; a missing one is a :class:`DrafterError` that names it."""
        if name not in self.settings:
            raise DrafterError(f"{folder / CARD_FILE}: setting '{name}' is missing; train it again")
        return self.settings[name]

    def size(self, folder: Path, name: str, most: int = MOST) -> int:
        """A setting that is a whole number of 1 to ``most``; :class:`DrafterError` otherwise."""
        value = self.setting(folder, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise DrafterError(
                f"{folder / CARD_FILE}: {name} = {value!r} is not a whole number of 1 to {most}; "
                "train it again"
            )
        return value

    def flag(self, folder: Path, name: str) -> bool:
        """A setting that is true or false; :class:`DrafterError` otherwise."""
        value = self.setting(folder, name)
        if not isinstance(value, bool):
            raise DrafterError(
                f"{folder / CARD_FILE}: {name} = {value!r} is not true or false; train it again"
            )
        return value

    def choice(self, folder: Path, name: str, allowed: tuple[str, ...]) -> Any:
        """A setting that is one of a few words; :class:`DrafterError` otherwise."""
        value = self.setting(folder, name)
        if value not in allowed:
            raise DrafterError(
                f"{folder / CARD_FILE}: {name} = {value!r} is not one of {', '.join(allowed)}; "
                "train it again"
            )
        return value


def method_of(folder: Path) -> str:
    """The name of the drafter whose card lies in ``folder``; :class:`DrafterError` without one."""
    try:
        return str(read_json(folder / CARD_FILE)["drafter"])
    except FileNotFoundError:
        raise DrafterError(f"{folder}: no {CARD_FILE}; give a folder written by 'train'") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DrafterError(
            f"{folder / CARD_FILE}: not a drafter's card ({error}); train it again"
        ) from None
