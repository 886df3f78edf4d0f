"""Which prompts are trained on and which are kept: seeded, stratified, topics kept apart."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from breakeven.data.prompt import Pool
from breakeven.data.render import Rendered
from breakeven.errors import DataError

SPLITS = ("train", "validation", "test")


def split(
    rows: Sequence[Rendered], *, validation: int, test: int, seed: int
) -> dict[str, list[Rendered]]:
    """Rows by split name; every row of pool ``HELD`` that is not needed is left out.

    The kept-out rows are shared over the categories in proportion to their size, ``HELD`` ones
    first. The result depends on the rows and the seed, not on their order. Raises
    :class:`DataError` when there are not enough rows.
    """
    strata: dict[str, list[Rendered]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: r.id):
        strata[row.category].append(row)
    available = {c: sum(r.pool is not Pool.TRAIN for r in s) for c, s in strata.items()}
    check_enough([row.pool for row in rows], validation=validation, test=test)
    wanted = validation + test
    kept_out = shares({c: len(s) for c, s in strata.items()}, wanted, available)
    tested = shares(kept_out, test, kept_out)
    parts: dict[str, list[Rendered]] = {name: [] for name in SPLITS}
    for category, stratum in strata.items():
        rng = random.Random(f"{seed}:{category}")
        rng.shuffle(stratum)
        stratum.sort(key=lambda r: (Pool.HELD, Pool.ANY, Pool.TRAIN).index(r.pool))
        out, rest = stratum[: kept_out[category]], stratum[kept_out[category] :]
        rng.shuffle(out)
        parts["test"] += out[: tested[category]]
        parts["validation"] += out[tested[category] :]
        parts["train"] += [r for r in rest if r.pool is not Pool.HELD]
    return {name: sorted(part, key=lambda r: r.id) for name, part in parts.items()}


def check_enough(pools: Sequence[Pool], *, validation: int, test: int) -> None:
    """Raise :class:`DataError` unless so many prompts give the splits and something to train on."""
    allowed = sum(pool is not Pool.TRAIN for pool in pools)
    if allowed < validation + test or len(pools) <= validation + test:
        raise DataError(
            f"{len(pools)} prompts, {allowed} of them allowed outside training, do "
            f"not give {validation} validation and {test} test rows and something to train on; "
            "add prompts or lower split.validation and split.test"
        )


def shares(sizes: dict[str, int], total: int, limits: dict[str, int]) -> dict[str, int]:
    """``total`` divided in proportion to ``sizes``, none above its limit (largest remainder).

    >>> shares({"a": 70, "b": 30}, 10, {"a": 99, "b": 99})
    {'a': 7, 'b': 3}
    >>> shares({"a": 70, "b": 30}, 10, {"a": 2, "b": 99})
    {'a': 2, 'b': 8}
    """
    assert total <= sum(limits.values())
    given = dict.fromkeys(sizes, 0)
    while (left := total - sum(given.values())) > 0:
        open_ = {c: n for c, n in sizes.items() if given[c] < limits[c]}
        weight = sum(open_.values())
        exact = {c: Fraction(left * n, weight) if weight else Fraction(1) for c, n in open_.items()}
        for c in open_:
            given[c] = min(limits[c], given[c] + int(exact[c]))
        if total - sum(given.values()) == left:  # only fractions are left: the largest first
            for c in sorted(open_, key=lambda c: (int(exact[c]) - exact[c], c))[:left]:
                given[c] += 1
    return given
