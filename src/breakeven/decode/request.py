"""What is asked of the decoder and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from breakeven.core import Finish, Round


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to be continued.

    ``prompt`` are token ids (at least one); ``max_new_tokens`` bounds the continuation;
    ``eos`` ids end it and stay in it; ``stop`` strings end it and are cut from the text.
    """

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int = 256
    eos: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Completion:
    """The answer to one request.

    ``tokens`` are the new token ids, the end-of-sequence id included when ``finish`` is a stop by
    it; ``text`` is filled when the decoder was given a tokenizer, cut before a stop string.
    ``rounds`` is the account of every round; plain decoding has none.
    """

    id: str
    tokens: list[int]
    finish: Finish
    text: str | None = None
    rounds: list[Round] = field(default_factory=list)
    prefill_s: float = 0.0
    decode_s: float = 0.0
