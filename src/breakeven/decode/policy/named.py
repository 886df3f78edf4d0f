"""Policies by name."""

from __future__ import annotations

from breakeven.cost.calibration import Calibration
from breakeven.cost.curve import CostCurve
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.base import Policy
from breakeven.decode.policy.fixed import Confidence, Fixed
from breakeven.errors import RecipeError, nearest

POLICIES = {
    "fixed": "always K tokens",
    "confidence": "at most K tokens, fewer where the drafter doubts itself",
    "adaptive": "0 to K tokens, as measured prices and acceptance advise",
}
PRICED = frozenset({"adaptive"})
"""The policies that read prices."""
LONGEST = {"fixed": 4, "confidence": 8, "adaptive": 16}
"""K where none is given."""
MOST = 256
"""The largest K. Longer drafts only cost time, and the cache has as many rows more."""


def policy_named(
    name: str, k: int | None = None, curve: CostCurve | Calibration | None = None
) -> Policy:
    """The policy with ``k`` as its longest draft; ``curve`` are prices for ``adaptive``.

    >>> policy_named("adaptive", 8).longest
    8
    """
    if name not in POLICIES:
        raise RecipeError(f"no policy is called '{name}'; {nearest(name, POLICIES)}")
    longest = LONGEST[name] if k is None else k
    if not 1 <= longest <= MOST:
        raise RecipeError(f"K = {longest} for policy '{name}': give 1 to {MOST}")
    if name == "adaptive":
        return Adaptive(longest, curve)
    return Confidence(longest) if name == "confidence" else Fixed(longest)
