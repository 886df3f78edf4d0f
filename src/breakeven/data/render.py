"""Prompts become token ids: the model's own chat template, thinking disabled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.data.prompt import Message, Pool, Prompt, Tally, is_text
from breakeven.errors import DataError

THINKING = "enable_thinking"  # the switch of templates that have one


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the verifier reads it."""

    id: str
    category: str
    pool: Pool
    prompt_ids: tuple[int, ...]

    @property
    def key(self) -> str:
        """Hash of the token ids: what a continuation belongs to."""
        return hashlib.sha256(repr(self.prompt_ids).encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders with one tokenizer; ``max_prompt`` is the longest prompt kept, in tokens."""

    tokenizer: Any  # transformers.PreTrainedTokenizerBase
    max_prompt: int = 512

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt as text, up to where the answer begins.

        Raises :class:`DataError` when no user turn says anything, or without a chat template.
        """
        if not any(m.role == "user" and m.content.strip() for m in messages):
            raise DataError("the prompt is empty; give at least one word")
        if not all(is_text(m.content) for m in messages):
            raise DataError("the prompt is not Unicode text; give it as UTF-8")
        template = self.tokenizer.chat_template
        if not template:
            raise DataError(
                "the tokenizer has no chat template; use an instruct model, or add "
                "chat_template.jinja to the model's folder"
            )
        switch = {THINKING: False} if THINKING in str(template) else {}
        text: str = self.tokenizer.apply_chat_template(
            [{"role": m.role, "content": m.content} for m in messages],
            tokenize=False,
            add_generation_prompt=True,
            **switch,
        )
        return text

    def ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt as token ids, of whatever length."""
        text = self.text(messages)
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def render(self, prompts: Sequence[Prompt], tally: Tally) -> list[Rendered]:
        """All prompts that fit; longer and empty ones are counted in ``tally``."""
        kept = []
        for prompt in prompts:
            if not prompt.text.strip():
                tally.dropped["empty prompt"] += 1
                continue
            ids = self.ids(prompt.messages)
            if len(ids) > self.max_prompt:
                tally.dropped[f"longer than {self.max_prompt} tokens"] += 1
                continue
            kept.append(Rendered(prompt.id, prompt.category, prompt.pool, ids))
        return kept

    def user_header(self) -> tuple[int, ...]:
        """What stands before the first word of a user: the prefix after which a model that was
        trained on conversations writes a prompt itself."""
        mark = "\u2042breakeven\u2042"
        text = self.text((Message("user", mark),))
        return tuple(self.tokenizer(text.split(mark)[0], add_special_tokens=False)["input_ids"])
