"""Prompts the verifier writes itself: what it says after the bare header of a user's turn.

A model tuned on conversations has learnt what people ask; given only the header it samples a
request of its own (Magpie, arXiv 2406.08464). Batches are seeded one by one, so a run can be
continued and repeated; what is too short, repetitive, garbled or personal is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from breakeven.config import Section, Seed
from breakeven.data.categories import categorise
from breakeven.data.journal import Journal
from breakeven.data.prompt import Message, Prompt, Tally, fingerprint
from breakeven.data.render import Renderer
from breakeven.data.sources.sampler import sample
from breakeven.errors import DataError
from breakeven.progress import meter
from breakeven.verifier.interface import Verifier

GIVE_UP = 20  # batches without a single prompt kept

_PERSONAL = re.compile(
    r"\S@\S+\.\w|https?://|www\.|\+?\d[\d\s().-]{7,}\d|\b\d{1,5}\s+\w+\s+(street|road|avenue|st|rd)\b"
    r"|\b(my|his|her) name is\b|\b(mr|mrs|ms|dr)\b\.?\s+[A-Z]",
    re.IGNORECASE,
)
_BLANK = re.compile(
    r"[\[<{(](your|insert|name|attribute|product|company|topic|date)\b", re.IGNORECASE
)
_UNWANTED = re.compile(
    r"\b(sex\w*|porn\w*|nude|naked|kill\w*|suicid\w*|murder\w*|rape\w*|drugs?|terroris\w*|nazi\w*"
    r"|racis\w*|weapon\w*|bombs?)\b",
    re.IGNORECASE,
)


class MagpieSettings(Section):
    """``count`` prompts wanted; the rest says how they are sampled."""

    count: NonNegativeInt = 0
    temperature: float = 1.0
    top_p: float = 0.9
    max_new_tokens: PositiveInt = 64
    batch: PositiveInt = 32
    seed: Seed = 0

    @property
    def wanted(self) -> bool:
        """Whether the recipe asks for this source at all."""
        return self.count > 0


@dataclass(slots=True)
class Magpie:
    """Samples until enough prompts pass :func:`fault`. ``journal`` keeps finished batches."""

    settings: MagpieSettings
    verifier: Verifier
    tokenizer: Any
    eos: frozenset[int]
    journal: Journal
    name: str = field(default="magpie", init=False)

    def prompts(self, tally: Tally) -> Iterator[Prompt]:
        """Prompts in the order of the batches. Ids are ``magpie-<batch>-<number>``."""
        seen: set[str] = set()
        barren = 0
        batches = self._batches()
        with meter("magpie prompts", self.settings.count) as progress:
            while len(seen) < self.settings.count:
                number, texts = next(batches)
                before = len(seen)
                for index, text in enumerate(texts):
                    if len(seen) == self.settings.count:
                        break
                    key, reason = _judged(text, seen)
                    if reason:
                        tally.dropped[reason] += 1
                        continue
                    seen.add(key)
                    progress.advance()
                    name = f"magpie-{number:04d}-{index:02d}"
                    yield Prompt(name, categorise(text), (Message("user", text),))
                barren = barren + 1 if len(seen) == before else 0
                if barren == GIVE_UP:
                    raise DataError(
                        f"magpie: {GIVE_UP} batches gave no usable prompt ({len(seen)} so far); "
                        "this verifier does not write user turns, set sources.magpie.count to 0"
                    )

    def _batches(self) -> Iterator[tuple[int, list[str]]]:
        """Texts by batch number: the journal's first, then new ones without end."""
        for number, entry in enumerate(self.journal.entries):
            yield number, entry["texts"]
        prefix = Renderer(self.tokenizer).user_header()
        s = self.settings
        while True:
            number = len(self.journal.entries)
            sampled = sample(
                self.verifier,
                prefix,
                batch=s.batch,
                max_new_tokens=s.max_new_tokens,
                stop=self.eos,
                temperature=s.temperature,
                top_p=s.top_p,
                seed=s.seed * 1_000_003 + number,
            )
            texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in sampled]
            self.journal.append({"texts": [text.strip() for text in texts]})
            yield number, self.journal.entries[number]["texts"]


def _judged(text: str, seen: set[str]) -> tuple[str, str | None]:
    """The prompt's fingerprint, and why it is dropped if it is."""
    key = fingerprint(Prompt("", "", (Message("user", text),)))
    return key, "seen before" if key in seen else fault(text)


def fault(text: str) -> str | None:
    """Why a self-written prompt is not used, or None when it is.

    >>> fault("Write to me at jo@example.org, please, about the garden")
    'personal data'
    >>> fault("How do I plant tulips in a small garden?") is None
    True
    """
    words = text.casefold().split()
    plain = sum(c.isascii() and (c.isalnum() or c.isspace()) for c in text)
    if not 4 <= len(words) <= 60:
        return "too short or too long"
    if not text.isascii() or plain < 0.85 * len(text) or not text[0].isalpha():
        return "garbled"
    if len(set(words)) < 0.6 * len(words):
        return "repetitive"
    if _PERSONAL.search(text):
        return "personal data"
    if _BLANK.search(text):
        return "unfilled blank"
    return "unwanted subject" if _UNWANTED.search(text) else None
