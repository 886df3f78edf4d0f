"""The prompt kit: prompts built from our own templates, word lists and short source texts.

The files are in ``data/kit``. Every eighth word of a list, passage and program is *held*: it
occurs in validation and test only, and so do the ``held`` templates, so that a test prompt is
never a near copy of a training prompt.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml
from pydantic import Field

from breakeven.config import Section, Seed
from breakeven.data.prompt import Message, Pool, Prompt, Tally, fingerprint
from breakeven.errors import RecipeError, nearest

EIGHTH = 8
SHORT = 10  # lists below this length (colours, days) are shared by all splits
TRIES = 40  # draws before a template counts as used up
_SLOT = re.compile(r"(\b[Aa] )?\{(?:(\w+):)?([\w.]+)\}")


class TemplateSettings(Section):
    """``counts``: prompts per category; ``held``: the share kept for validation and test."""

    counts: dict[str, int] = Field(default_factory=dict)
    held: float = 0.1
    seed: Seed = 0

    @property
    def wanted(self) -> bool:
        """Whether the recipe asks for this source at all."""
        return any(self.counts.values())


@dataclass(slots=True)
class Templates:
    """Fills templates in turn until each category has its count."""

    settings: TemplateSettings
    name: str = field(default="templates", init=False)

    def prompts(self, tally: Tally) -> Iterator[Prompt]:
        """Prompts by category, training pool first. Ids are ``kit-<category>-<pool>-<number>``."""
        kit = Kit.read()
        for category, count in self.settings.counts.items():
            if category not in kit.templates:
                hint = nearest(category, kit.templates)
                raise RecipeError(f"sources.templates.counts: no category '{category}'; {hint}")
            held = round(count * self.settings.held)
            for pool, wanted in ((Pool.TRAIN, count - held), (Pool.HELD, held)):
                made = 0
                for prompt in kit.prompts(category, pool, wanted, self.settings.seed):
                    made += 1
                    yield prompt
                if made < wanted:
                    tally.notes.append(f"{category}: the kit has only {made} {pool} prompts")


@dataclass(frozen=True, slots=True)
class Kit:
    """The parsed files: templates by category and pool, and what fills their slots."""

    templates: Mapping[str, Mapping[str, list[str]]]
    lists: Mapping[str, list[str]]
    tables: Mapping[str, Mapping[str, str]]

    @staticmethod
    @cache
    def read() -> Kit:
        """The kit that ships with the package."""
        lists = dict(_yaml("words"))
        lists["passages"], lists["snippets"] = _yaml("passages"), _yaml("snippets")
        return Kit(_yaml("templates"), lists, _yaml("tables"))

    def prompts(self, category: str, pool: Pool, count: int, seed: int) -> Iterator[Prompt]:
        """Up to ``count`` different prompts, every template as often as the others."""
        rng = random.Random(f"{seed}:{category}:{pool}")
        groups = self.templates[category]
        templates = list(groups["common"])
        if pool is Pool.HELD:
            # held templates come up four times as often as the shared ones
            templates += list(groups["held"]) * 4
        seen: set[str] = set()
        made = 0
        while templates and made < count:
            rng.shuffle(templates)
            for template in tuple(templates):
                if made == count:
                    break
                name = f"kit-{category}-{pool}-{made:04d}"
                for _ in range(TRIES):
                    message = Message("user", self.fill(template, pool, rng))
                    prompt = Prompt(name, category, (message,), pool)
                    key = fingerprint(prompt)
                    if key not in seen:
                        break
                else:
                    templates = [t for t in templates if t != template]
                    continue
                seen.add(key)
                made += 1
                yield prompt

    def fill(self, template: str, pool: Pool, rng: random.Random) -> str:
        """``template`` with every slot drawn; one name has one value, one list gives no word twice.

        >>> kit = Kit({}, {"x": ["owl"]}, {})
        >>> kit.fill("a {x} and {x}, {n:3..3}", Pool.TRAIN, random.Random(0))
        'an owl and owl, 3'
        """
        values: dict[str, str] = {}
        used: dict[str, list[str]] = {}

        def draw(slot: re.Match[str]) -> str:
            article, name, kind = slot[1] or "", slot[2] or slot[3], slot[3]
            if name not in values:
                values[name] = self._draw(kind, pool, rng, used.setdefault(kind, []))
                used[kind].append(values[name])
            return _article(article, values[name]) + values[name]

        return _SLOT.sub(draw, template)

    def _draw(self, kind: str, pool: Pool, rng: random.Random, used: list[str]) -> str:
        if kind == "tables":
            return self._table(pool, rng)
        if ".." in kind:
            low, high = kind.split("..")
            return str(rng.randint(int(low), int(high)))
        words = [word for word in pooled(self.lists[kind], pool) if word not in used]
        return rng.choice(words).rstrip("\n")

    def _table(self, pool: Pool, rng: random.Random) -> str:
        columns = self.tables[rng.choice(sorted(self.tables))]
        rows = rng.randint(4, 8)
        cells: list[list[str]] = [[] for _ in columns]
        for values, kind in zip(cells, columns.values(), strict=True):
            for _ in range(rows):
                fresh = values if kind.startswith("@") and len(self.lists[kind[1:]]) > SHORT else []
                available = pooled(self.lists[kind[1:]], pool) if kind.startswith("@") else []
                exhausted = len(set(fresh)) >= len(available)
                values.append(self._draw(kind.lstrip("@"), pool, rng, [] if exhausted else fresh))
        header = [" | ".join(columns)]
        return "\n".join(header + [" | ".join(row) for row in zip(*cells, strict=True)])


def pooled(words: list[str], pool: Pool) -> list[str]:
    """The words of one pool: every eighth is held, unless the list is short.

    >>> pooled(list("abcdefghijkl"), Pool.HELD), pooled(list("abc"), Pool.HELD)
    (['h'], ['a', 'b', 'c'])
    """
    if len(words) < SHORT or pool is Pool.ANY:
        return words
    return [w for i, w in enumerate(words) if (i % EIGHTH == EIGHTH - 1) == (pool is Pool.HELD)]


def _article(article: str, word: str) -> str:
    return f"{article[0]}n " if article and word[0] in "aeiouAEIOU" else article


def _yaml(name: str) -> Any:
    file = resources.files("breakeven.data").joinpath("kit", f"{name}.yaml")
    return yaml.safe_load(file.read_text(encoding="utf-8"))
