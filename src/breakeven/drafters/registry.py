"""Drafters by name; packages add theirs through the entry point group ``breakeven.drafters``.

An entry point is the class itself: a :class:`~breakeven.drafters.base.Drafter` that is created
from options; by ``of(verifier, **options)`` when it is made from the verifier alone; or, when it
has trained weights, by ``load(folder, verifier, identity, **options)``.
With ``untrained(verifier, k)`` as well, its price can be measured before it is trained.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from breakeven.drafters.base import Drafter
from breakeven.drafters.card import method_of
from breakeven.drafters.options import check_options
from breakeven.drafters.shipped import shipped_folder
from breakeven.drafters.wrapper import Wrapper
from breakeven.errors import DrafterError, nearest
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import Loaded

GROUP = "breakeven.drafters"


@dataclass(frozen=True, slots=True)
class Method:
    """One drafting method: where its class is, and whether it needs a trained folder.

    ``borrows`` names the method whose folders it reads, where that is another.
    """

    where: str
    trained: bool
    summary: str
    borrows: str | None = None


METHODS = {
    "ngram": Method(
        "breakeven.drafters.ngram:NGram", False, "looks the last tokens up in the context"
    ),
    "peft-bd": Method(
        "breakeven.drafters.peft_bd:PeftBD",
        True,
        "the paper's LoRA block diffusion, over a cache of its own",
    ),
    "suffix": Method(
        "breakeven.drafters.suffix:Suffix",
        False,
        "continues the longest match, here or in earlier answers, by what followed most often",
    ),
    "hybrid": Method(
        "breakeven.drafters.hybrid:Hybrid",
        True,
        "suffix where a long match promises much, elsewhere the drafter of a folder or quantized",
    ),
    "tree": Method(
        "breakeven.drafters.tree:Tree",
        True,
        "best-first trees of the candidates of the block drafter in a folder",
        "peft-bd-gated",
    ),
    "peft-bd-gated": Method(
        "breakeven.drafters.peft_bd:GatedPeftBD",
        True,
        "row-gated LoRA block diffusion on the verifier's own backbone and cache",
    ),
    "peft-bd-fused": Method(
        "breakeven.drafters.fused:Fused",
        True,
        "the adapter of a peft-bd-gated folder, aboard the verify pass as far as rows are cheap",
        "peft-bd-gated",
    ),
    "quantized": Method(
        "breakeven.drafters.quantized:Quantized",
        False,
        "the verifier with int8 weights: a quarter of the bytes to read",
    ),
    "peft-bd-quantized": Method(
        "breakeven.drafters.quantized:QuantizedPeftBD",
        True,
        "the adapter of a peft-bd-gated folder on int8 weights: a cheap draft pass",
        "peft-bd-gated",
    ),
    "layer-skip": Method(
        "breakeven.drafters.layer_skip:LayerSkip", True, "the verifier without some of its layers"
    ),
    "early-exit": Method(
        "breakeven.drafters.early_exit:EarlyExit",
        True,
        "the verifier's first layers, their states reused by verification",
    ),
    "fastmtp": Method(
        "breakeven.drafters.fastmtp:FastMTP", True, "one shared multi-token-prediction layer"
    ),
}


def names() -> list[str]:
    """Every known drafter, the plug-ins included."""
    return sorted({*METHODS, *(point.name for point in entry_points(group=GROUP))})


def create(name: str, loaded: Loaded, path: Path | str | None = None, **options: Any) -> Drafter:
    """A drafter for a loaded verifier; ``path`` is the folder of a trained one.

    Without it the drafter that ships for this verifier is taken. ``options`` are the method's own,
    for how it drafts. Raises :class:`DrafterError` for an unknown name or option, a missing or
    needless folder, or weights that do not fit the verifier.
    """
    kind, trained = check(name, path, options)
    if not trained:
        return _bare(kind, loaded.verifier, options)
    path = path or shipped_folder(_shipped_as(name), loaded.identity)
    if path is None and hasattr(kind, "of"):
        return _bare(kind, loaded.verifier, options)
    if path is None:
        raise DrafterError(
            f"'{name}' is a trained drafter and none ships for '{loaded.identity.name}'; give its "
            f"folder: {name}=FOLDER"
        )
    drafter: Drafter = kind.load(Path(path), loaded.verifier, loaded.identity, **options)
    return drafter


def check(
    name: str, path: Path | str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Any, bool]:
    """The class called ``name`` and whether it is trained, if these go with it.

    Needs no verifier, so that a slip is told before one is loaded. Raises :class:`DrafterError`
    as :func:`create`.
    """
    kind, trained = _find(name)
    check_options(name, kind.load if trained else getattr(kind, "of", kind), options or {})
    if path is not None and not trained:
        raise DrafterError(f"'{name}' has no weights; leave the folder '{path}' out")
    if path is not None and not Path(path).is_dir():
        raise DrafterError(f"'{name}': no folder '{path}'; train one with 'breakeven train'")
    return kind, trained


def _shipped_as(name: str) -> str:
    """The method whose shipped folder serves ``name``."""
    return (METHODS[name].borrows if name in METHODS else None) or name


def untrained(name: str, verifier: Verifier, k: int) -> Drafter | None:
    """A drafter that drafts ``k`` tokens with random weights, at the price of trained ones.

    None when the method has no untrained form. Raises :class:`DrafterError` when it does not fit
    the verifier.
    """
    kind, trained = _find(name)
    if not trained:
        return _bare(kind, verifier, {})
    make = getattr(kind, "untrained", None)
    if make is None:
        return None
    made: Drafter = make(verifier, k)
    return made


def load_trained(folder: Path, verifier: Verifier, identity: Identity | None) -> Drafter:
    """The trained drafter that ``folder`` holds, whatever its method."""
    name = method_of(folder)
    kind, trained = _find(name)
    wraps = isinstance(kind, type) and issubclass(kind, Wrapper)
    if wraps or not trained:
        raise DrafterError(f"{folder}: '{name}' is no trained drafter; give one made by 'train'")
    drafter: Drafter = kind.load(folder, verifier, identity)
    return drafter


def _bare(kind: Any, verifier: Verifier, options: Mapping[str, Any]) -> Drafter:
    """A drafter without weights of its own."""
    of = getattr(kind, "of", None)
    drafter: Drafter = kind(**options) if of is None else of(verifier, **options)
    return drafter


def _find(name: str) -> tuple[Any, bool]:
    if name in METHODS:
        module, _, attribute = METHODS[name].where.partition(":")
        return getattr(importlib.import_module(module), attribute), METHODS[name].trained
    for point in entry_points(group=GROUP):
        if point.name == name:
            kind = _plugged(point)
            return kind, hasattr(kind, "load")
    raise DrafterError(f"no drafter is called '{name}'; {nearest(name, names())}")


def _plugged(point: EntryPoint) -> Any:
    """What an entry point names; whatever its import raises becomes one line."""
    try:
        return point.load()
    except Exception as error:  # a plug-in may raise anything
        package = point.dist.name if point.dist else point.value
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DrafterError(
            f"drafter '{point.name}' of {package} cannot be imported from '{point.value}' "
            f"({reason}); repair or uninstall {package}"
        ) from error
