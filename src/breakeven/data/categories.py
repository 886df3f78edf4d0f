"""A category for a prompt that comes without one, from the words it uses."""

from __future__ import annotations

import re

CATEGORIES = (
    "chat",
    "writing",
    "reasoning",
    "maths",
    "code",
    "summarising",
    "extraction",
)

_WORDS = (
    (
        "code",
        r"```|\b(python|javascript|java|c\+\+|html|css|sql|code|function|program|script|api)\b",
    ),
    ("summarising", r"\b(summar\w+|tl;?dr|main points?|key points?|shorten)\b"),
    ("extraction", r"\b(extract|list all|convert (this|the)|identify (all|the)|classify|table)\b"),
    (
        "maths",
        r"\d\s*[-+*/x^=]\s*\d|\b(calculate|solve|equation|percent\w*|area of|perimeter|probability"
        r"|how (many|much)|average|sum of|fraction|integral|derivative)\b",
    ),
    (
        "writing",
        r"\b(write|poem|story|essay|letter|e-?mail|rewrite|edit|slogan|haiku|speech|draft)\b",
    ),
    (
        "reasoning",
        r"\b(why|explain|compare|differences?|true or false|reason\w*|prove|analy[sz]e)\b",
    ),
)
_PATTERNS = tuple((name, re.compile(words, re.IGNORECASE)) for name, words in _WORDS)


def categorise(text: str) -> str:
    """The first category whose words occur in ``text``; ``chat`` when none does.

    >>> categorise("Write a poem about snow"), categorise("What is 3 + 4?"), categorise("Hi!")
    ('writing', 'maths', 'chat')
    """
    return next((name for name, pattern in _PATTERNS if pattern.search(text)), "chat")
