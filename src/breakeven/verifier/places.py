"""Where things are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$BREAKEVEN_CACHE``, else ``$XDG_CACHE_HOME/breakeven``, else ``~/.cache/breakeven``."""
    own = os.environ.get("BREAKEVEN_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "breakeven"
