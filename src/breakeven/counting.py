"""Counts in words."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """How many there are of something; ``things`` are several of it (default: with an s).

    >>> counted(1, "draft"), counted(2, "draft"), counted(0, "draft")
    ('1 draft', '2 drafts', '0 drafts')
    >>> counted(1, "pass", "passes"), counted(40_000, "pass", "passes")
    ('1 pass', '40,000 passes')
    """
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"
