"""Figures as people read them; each is also a filter of the page's templates."""

from __future__ import annotations

import re
from collections.abc import Callable

from breakeven.measure.definitions import DEFINITIONS
from breakeven.report.run import Run

THIN = "\u202f"
"""Narrow no-break space, between thousands and before units."""


def number(value: float | None, digits: int = 2) -> str:
    """Fixed digits; a dash for what was not measured.

    >>> number(2.8812), number(None), number(3, 0)
    ('2.88', '–', '3')
    """
    return "–" if value is None else f"{value:.{digits}f}"


def times(value: float | None) -> str:
    """A ratio.

    >>> times(1.1234)
    '1.12×'
    """
    return "–" if value is None else f"{value:.2f}×"


def count(value: int | None) -> str:
    """A whole number with thin spaces between thousands.

    >>> count(12345) == f"12{THIN}345"
    True
    """
    return "–" if value is None else f"{value:,}".replace(",", THIN)


def size(bytes_: int) -> str:
    """A file size.

    >>> size(300), size(45_000)
    ('300\\u202fB', '45\\u202fkB')
    """
    if bytes_ < 1000:
        return f"{bytes_}{THIN}B"
    if bytes_ < 1_000_000:
        return f"{bytes_ / 1000:.0f}{THIN}kB"
    return f"{bytes_ / 1_000_000:.1f}{THIN}MB"


def unbroken(text: str) -> str:
    """Keep ranges and percentages on one line.

    >>> unbroken("95 %: 1.2–1.4") == "95\u00a0%: 1.2\u2060–\u20601.4"
    True
    """
    return re.sub(r"(?<=\d)–(?=\d)", "\u2060–\u2060", text).replace(" %", "\u00a0%")


def clip(text: str, most: int) -> str:
    """At most so many characters, the rest as an ellipsis.

    >>> clip("peft-bd-gated-k4", 8)
    'peft-bd…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


FILTERS: dict[str, Callable[..., str]] = {
    function.__name__: function for function in (number, times, count, size, unbroken)
}
"""The filters of the templates, by name."""

OWN = {
    "cost curve C(W) / C(1)": "time of a verifier pass of W rows over a pass of one row, at the "
    "same context length; K drafts are verified with W = K + 1 rows, or K when the first is free",
    "free first token": "a first draft that is the verifier's own decision, read off the draft "
    "pass; it is always accepted",
    "margin": "the verifier's largest logit less its second largest; where it is tiny, two orders "
    "of the same sums can pick different tokens: a near-tie",
    "r, A*(r)": "r is the share of drafting time taken away (0 as measured, 1 drafting is free); "
    "A* the acceptance length that plain decoding's speed would then need",
}
"""Words of the page that are not the benchmark's."""


def definitions(run: Run) -> dict[str, str]:
    """Every word of the page; what the run itself states wins over today's wording."""
    stated = run.configuration.get("definitions")
    own = {str(k): str(v) for k, v in stated.items()} if isinstance(stated, dict) else {}
    return DEFINITIONS | own | OWN
