"""Errors that speak to the person: what was given, what is allowed, what to do next.

Every error a user can cause derives from :class:`BreakevenError`; the command line prints its
one line and leaves with exit code 2, without a traceback. ``assert`` is kept for our own
invariants.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BreakevenError(Exception):
    """Base of all errors a person can act on. ``exit_code`` is what the command line returns."""

    exit_code = 2


class ModelError(BreakevenError):
    """A model cannot be loaded or does not do what was asked of it."""


class DataError(BreakevenError):
    """Prompts, artifacts or result files are missing, broken or do not fit together."""


class RecipeError(BreakevenError):
    """A recipe or an option has a value that is not allowed."""


class DrafterError(BreakevenError):
    """A drafter cannot be loaded or does not fit the verifier."""


class TrainingError(BreakevenError):
    """Training cannot start or must not go on."""


class OutputExistsError(BreakevenError):
    """An output folder holds something already and ``--force`` was not given."""


def nearest(given: str, allowed: Iterable[str]) -> str:
    """A hint naming the allowed word nearest to ``given``, or listing them all.

    >>> nearest("batchsize", ["batch_size", "lr"])
    "did you mean 'batch_size'?"
    >>> nearest("zzz", ["lr", "steps"])
    'allowed: lr, steps'
    """
    words = sorted(allowed)
    close = difflib.get_close_matches(given, words, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"allowed: {', '.join(words)}"
