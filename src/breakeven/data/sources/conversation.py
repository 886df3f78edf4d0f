"""Records of other people's formats, read as the turns before the first answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from breakeven.data.prompt import Message, is_text

_ROLES = {
    "user": "user",
    "human": "user",
    "prompter": "user",
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
}


class BadRecord(ValueError):
    """A record no prompt can be made of; the text is the reason, counted as such."""


def opening(record: Any) -> tuple[Message, ...]:
    """The turns of ``record`` up to the first answer.

    Reads ``messages`` (role/content), ``conversations`` (from/value or role/content), ``turns``
    (a list of user turns, of which the first counts), ``prompt``, ``text`` or ``instruction``.
    Raises :class:`BadRecord`.

    >>> opening({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": ""}]})
    (Message(role='user', content='Hi'),)
    """
    if not isinstance(record, Mapping):
        raise BadRecord("not an object")
    for key in ("messages", "conversations"):
        if key in record:
            return _from_turns(record[key], key)
    if "turns" in record:
        turns = record["turns"]
        if not isinstance(turns, list) or not turns:
            raise BadRecord("turns is not a list with at least one turn")
        return (_user(turns[0]),)
    for key in ("prompt", "text", "instruction"):
        if key in record:
            value = record[key]
            return _from_turns(value, key) if isinstance(value, list) else (_user(value),)
    raise BadRecord("no messages, conversations, turns, prompt or text")


def _from_turns(turns: Any, key: str) -> tuple[Message, ...]:
    if not isinstance(turns, list):
        raise BadRecord(f"{key} is not a list")
    before: list[Message] = []
    for turn in turns:
        message = _turn(turn)
        if message.role == "assistant":
            break
        before.append(message)
    if not any(m.role == "user" for m in before):
        raise BadRecord("no user turn before the first answer")
    for message in before:
        _user(message.content)
    return tuple(before)


def _turn(turn: Any) -> Message:
    if not isinstance(turn, Mapping):
        raise BadRecord("a turn is not an object")
    role, content = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
    known = _ROLES.get(str(role).lower())
    if known is None:
        raise BadRecord("a turn has no known role")
    if not isinstance(content, str):
        raise BadRecord("a turn has no text")
    return Message(known, content)


def _user(content: Any) -> Message:
    if not isinstance(content, str):
        raise BadRecord("a turn has no text")
    if not content.strip():
        raise BadRecord("empty prompt")
    if not is_text(content):
        raise BadRecord("not Unicode text (half a surrogate pair)")
    return Message("user", content)
