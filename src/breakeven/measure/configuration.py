"""One way to decode: a drafter, from where, and how many tokens it drafts in each round."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from breakeven.config import parse_setting
from breakeven.decode.policy.named import POLICIES, policy_named
from breakeven.errors import RecipeError, nearest

Length = int | str
"""A draft length, or the name of a policy that chooses it."""

LEARNED = tuple(name for name in POLICIES if name != "fixed")

PLAIN = "ar"
"""The name of plain (autoregressive) decoding in every result file."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """``drafter`` is a registered name, ``k`` the draft tokens per round, ``path`` its weights.

    ``label`` tells it from the same drafter with other weights. With a ``policy`` other than
    ``fixed``, ``k`` is the most that it may draft. ``options`` are the drafter's own; those that
    are given stand in its name.

    >>> Configuration("ngram", 4).name, Configuration("fastmtp", 4, Path("runs/b"), "b").name
    ('ngram-k4', 'fastmtp[b]-k4')
    >>> Configuration("ngram", 16, policy="adaptive").name
    'ngram-adaptive'
    >>> Configuration("ngram", 4, options={"longest": 5}).name
    'ngram[longest=5]-k4'
    """

    drafter: str
    k: int
    path: Path | None = None
    label: str | None = None
    policy: str = "fixed"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        drafter: str,
        length: Length,
        path: Path | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Configuration:
        """``length`` is a number of tokens or the name of a policy."""
        own = dict(options or {})
        if isinstance(length, int):
            return cls(drafter, length, path, options=own)
        return cls(drafter, policy_named(length).longest, path, policy=length, options=own)

    def __post_init__(self) -> None:
        if self.k < 1:
            raise RecipeError(
                f"k = {self.k} for '{self.drafter}': give 1 or more; plain decoding always runs"
            )

    @property
    def name(self) -> str:
        """The configuration's name in every result file."""
        marks = ",".join([self.label or "", *self._settings]).strip(",")
        length = f"k{self.k}" if self.policy == "fixed" else self.policy
        return f"{self.drafter}[{marks}]-{length}" if marks else f"{self.drafter}-{length}"

    @property
    def source(self) -> tuple[str, ...]:
        """What configurations have in common that can share one drafter."""
        return (self.drafter, str(self.path), *self._settings)

    @property
    def _settings(self) -> list[str]:
        """The options as ``name=value``, fit for a folder's name."""
        return [f"{name}={_spelt(value)}" for name, value in sorted(self.options.items())]

    @property
    def folder(self) -> str | None:
        """Where the weights come from, for result files."""
        return str(self.path) if self.path else None


def _spelt(value: Any) -> str:
    """An option's value as it may stand in a folder's name.

    >>> _spelt([3, 17]), _spelt("runs/a"), _spelt(True)
    ('[3,17]', 'runs-a', 'true')
    """
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text.replace("/", "-")


def parse_drafter(text: str) -> tuple[str, Path | None]:
    """``NAME`` or ``NAME=PATH`` as written on the command line.

    >>> parse_drafter("ngram")
    ('ngram', None)
    """
    name, equals, path = text.partition("=")
    if not name or (equals and not path):
        raise RecipeError(f"drafter '{text}': write NAME or NAME=PATH, e.g. fastmtp=runs/fastmtp")
    return name, Path(path) if path else None


def shared_options(texts: Iterable[str], drafters: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each drafter its options from ``[DRAFTER.]OPTION=VALUE`` words of a command line.

    A word that names no drafter is for the only one.

    >>> shared_options(["longest=5"], ["ngram"])
    {'ngram': {'longest': 5}}
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in drafters}
    for text in texts:
        where = "--drafter-option"
        key, value = parse_setting(text, where, "OPTION=VALUE, e.g. longest=5")
        name, _, option = key.rpartition(".")
        if not name and len(found) > 1:
            first = next(iter(found))
            raise RecipeError(
                f"{where} '{text}': of which drafter ({', '.join(found)})? write DRAFTER.OPTION="
                f"VALUE, e.g. {first}.{text}"
            )
        if name and name not in found:
            raise RecipeError(f"{where} '{text}': no drafter '{name}' here; {nearest(name, found)}")
        found[name or next(iter(found))][option] = value
    return found


def parse_lengths(text: str) -> list[Length]:
    """Draft lengths, or policies that choose them, separated by commas.

    >>> parse_lengths("2,4,adaptive")
    [2, 4, 'adaptive']
    """
    words = [word.strip() for word in text.split(",")]
    try:
        return [word if word in LEARNED else int(word) for word in words]
    except ValueError:
        raise RecipeError(
            f"k '{text}': write whole numbers or {' or '.join(LEARNED)} with commas, e.g. 2,4"
        ) from None


def cross(drafters: Iterable[str], lengths: Sequence[Length]) -> list[Configuration]:
    """Every drafter (``NAME`` or ``NAME=PATH``) with every draft length.

    >>> [c.name for c in cross(["ngram"], [2, 4])]
    ['ngram-k2', 'ngram-k4']
    """
    parsed = [parse_drafter(text) for text in drafters]
    return check([Configuration.of(name, k, path) for name, path in parsed for k in lengths])


def check(configurations: Sequence[Configuration]) -> list[Configuration]:
    """The configurations under distinct names; none at all or one given twice is an error."""
    if not configurations:
        raise RecipeError("no drafter to measure: give at least one, e.g. --drafter ngram")
    named = labelled(configurations)
    name, count = Counter(c.name for c in named).most_common(1)[0]
    if count > 1:
        raise RecipeError(f"configuration '{name}' is given {count} times: give each one once")
    return named


def labelled(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Label a drafter that comes from several folders with the folder's name.

    >>> [c.name for c in cross(["fastmtp=runs/a", "fastmtp=runs/b"], [4])]
    ['fastmtp[a]-k4', 'fastmtp[b]-k4']
    >>> [c.name for c in cross(["hybrid", "hybrid=runs/a"], [4])]
    ['hybrid-k4', 'hybrid[a]-k4']
    """
    configurations = list(configurations)
    named = []
    for c in configurations:
        sources = {o.path for o in configurations if o.drafter == c.drafter}
        folders = {path for path in sources if path}
        label = _ends(folders)[c.path] if c.path and len(sources) > 1 else None
        named.append(replace(c, label=label))
    return named


def _ends(folders: Collection[Path]) -> dict[Path, str]:
    """For each folder the end of its path, as short as it can be while all differ."""
    parts = {folder: folder.absolute().parts[1:] for folder in folders}
    ends: dict[Path, str] = {}
    for depth in range(1, max(map(len, parts.values())) + 1):
        ends = {folder: "-".join(names[-depth:]) for folder, names in parts.items()}
        if len(set(ends.values())) == len(ends):
            break
    return ends
