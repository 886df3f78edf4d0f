"""A prompt before it is rendered, where it may be used, and what became of its fellows."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Pool(StrEnum):
    """On which side of the split a prompt may fall."""

    ANY = "any"
    TRAIN = "train"
    HELD = "held"  # validation and test only: its topic or source text is never trained on


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: ``role`` is ``system`` or ``user``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the verifier is asked, up to its first answer."""

    id: str
    category: str
    messages: tuple[Message, ...]
    pool: Pool = Pool.ANY

    @property
    def text(self) -> str:
        """The turns of the user, joined."""
        return "\n\n".join(m.content for m in self.messages if m.role == "user")


@dataclass(slots=True)
class Tally:
    """What one source gave: prompts kept, prompts dropped by reason, and remarks."""

    source: str
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


class Source(Protocol):
    """Where prompts come from. Settings are given at construction."""

    @property
    def name(self) -> str:
        """The word used in recipes and reports."""
        ...

    def prompts(self, tally: Tally) -> Iterator[Prompt]:
        """Yield prompts with ids unique within the source; count what is dropped in ``tally``.

        The same settings give the same prompts in the same order.
        """
        ...


def is_text(text: str) -> bool:
    """Whether ``text`` can be written as UTF-8: it holds no half of a surrogate pair.

    >>> is_text("naïve"), is_text("half \\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def fingerprint(prompt: Prompt) -> str:
    """Hash of the normalised turns; equal for prompts that differ in case, space or form only.

    >>> a = Prompt("1", "chat", (Message("user", "Hello  there"),))
    >>> b = Prompt("2", "chat", (Message("user", "hello there "),))
    >>> fingerprint(a) == fingerprint(b)
    True
    """
    turns = (f"{m.role}:{_normalised(m.content)}" for m in prompt.messages)
    return hashlib.sha256("\x00".join(turns).encode("utf-8", "surrogatepass")).hexdigest()


def deduplicated(prompts: Iterator[Prompt] | list[Prompt]) -> tuple[list[Prompt], int]:
    """The first prompt of each :func:`fingerprint`, and how many others were removed.

    A prompt seen as ``TRAIN`` or ``HELD`` first keeps that pool: the split comes after.
    """
    kept: dict[str, Prompt] = {}
    total = 0
    for prompt in prompts:
        total += 1
        kept.setdefault(fingerprint(prompt), prompt)
    return list(kept.values()), total - len(kept)


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
