"""Where a completion ends, decided token by token, whatever size the blocks come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from breakeven.core import Finish
from breakeven.decode.request import Request


class Stopper:
    """Watches one request's new tokens.

    A block of committed tokens is taken one token at a time, so the result is what one-token
    decoding would give: nothing after an end-of-sequence id, a stop string found wherever its
    tokens fall, and the budget last (a stop within the budget wins over the budget).
    """

    def __init__(self, request: Request, tokenizer: Any, room: int) -> None:
        assert tokenizer is not None or not request.stop, "stop strings need a tokenizer"
        self._request, self._tokenizer = request, tokenizer
        self._room = room  # tokens left in the model's context
        self.tokens: list[int] = []

    @property
    def remaining(self) -> int:
        """How many more tokens may be committed."""
        budget = self._request.max_new_tokens - len(self.tokens)
        return min(budget, self._room - len(self.tokens))

    def take(self, block: Sequence[int]) -> tuple[int, Finish | None]:
        """Add committed tokens until one ends the completion; returns how many were kept."""
        for count, token in enumerate(block, start=1):
            self.tokens.append(token)
            finish = self._judge(token)
            if finish is not None:
                return count, finish
        return len(block), None

    def text(self) -> str | None:
        """The text so far without special tokens, cut before the first stop string."""
        if self._tokenizer is None:
            return None
        text: str = self._tokenizer.decode(self.tokens, skip_special_tokens=True)
        return text[: self._stop_at(text)]

    def _judge(self, token: int) -> Finish | None:
        if token in self._request.eos or (self._request.stop and self._hit()):
            return Finish.STOP
        if len(self.tokens) >= self._request.max_new_tokens:
            return Finish.LENGTH
        return Finish.CONTEXT if len(self.tokens) >= self._room else None

    def _hit(self) -> bool:
        text = self._tokenizer.decode(self.tokens, skip_special_tokens=True)
        return self._stop_at(text) is not None

    def _stop_at(self, text: str) -> int | None:
        found = [i for stop in self._request.stop if (i := text.find(stop)) >= 0]
        return min(found, default=None)
