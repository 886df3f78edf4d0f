"""The words of the package, as small frozen records.

Nothing here imports anything of ours, and nothing here knows about tensors: the ledger, the
cost model, the decoder, the benchmark and the report all speak in these terms.

A *round* is draft → verify → accept → commit. The *root* is the last committed token, whose
key/value row is not in the cache yet. A round that proposes ``K`` tokens and accepts ``a`` of
them commits ``N = a + 1`` tokens: the accepted drafts and one token of the verifier's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a forward pass was bought for."""

    PREFILL = "prefill"  # the prompt, before the first token
    PLAIN = "plain"  # one row of plain (autoregressive) decoding
    DRAFT = "draft"  # proposing tokens, whoever's weights are used
    VERIFY = "verify"  # judging a draft with the verifier's own weights


class Finish(StrEnum):
    """Why a completion ended (OpenAI's words; ``CONTEXT`` is reported to clients as length)."""

    STOP = "stop"  # an end-of-sequence token or a stop string
    LENGTH = "length"  # the budget of new tokens
    CONTEXT = "context"  # no position left in the model's context


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass: a purchase.

    ``rows`` is the width W of the pass (rows per request), ``batch`` the number of requests,
    ``context`` the longest cached length it attended to, ``seconds`` its wall time and ``mode``
    the execution mode it ran in (``eager``, ``native``, ``compiled`` or ``graph``).
    ``model`` names whose weights ran: ``verifier`` or the drafter's name.
    """

    phase: Phase
    rows: int
    batch: int
    context: int
    seconds: float
    mode: str = "eager"
    model: str = "verifier"


@dataclass(frozen=True, slots=True)
class Draft:
    """The tokens one drafter proposes for one request in one round (may be empty).

    The first ``free`` tokens are not guesses: the draft pass ran the root row with the
    verifier's own weights, so they are the verifier's decisions and the root's key/value row is
    already in the cache (ALGORITHMS 1.9, "free first token"). ``free`` is 0 or 1.

    >>> Draft((5, 6, 7), free=1).guesses
    (6, 7)
    """

    tokens: tuple[int, ...]
    free: int = 0

    def __post_init__(self) -> None:
        assert self.free in (0, 1) and self.free <= len(self.tokens)

    @property
    def guesses(self) -> tuple[int, ...]:
        """The drafted tokens that verification may still reject."""
        return self.tokens[self.free :]

    def clipped(self, limit: int) -> Draft:
        """The same draft with at most ``limit`` tokens."""
        return self if len(self.tokens) <= limit else Draft(self.tokens[:limit], self.free)


@dataclass(frozen=True, slots=True)
class Verified:
    """What the verifier said about one draft of one request.

    ``accepted`` counts leading drafted tokens that equal the verifier's choice (free ones
    included); ``token`` is the verifier's own next token after them: the *bonus* when every
    draft was accepted, else the *correction*.

    >>> v = Verified(draft=Draft((5, 6, 7)), accepted=2, token=9)
    >>> v.committed, v.tokens
    (3, (5, 6, 9))
    """

    draft: Draft
    accepted: int
    token: int

    def __post_init__(self) -> None:
        assert self.draft.free <= self.accepted <= len(self.draft.tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens this round commits, before truncation by EOS, stop strings or limits."""
        return (*self.draft.tokens[: self.accepted], self.token)

    @property
    def committed(self) -> int:
        """N = a + 1, before truncation."""
        return self.accepted + 1


@dataclass(frozen=True, slots=True)
class Round:
    """The account of one round of one request.

    ``drafted`` = K, ``accepted`` = a (both before truncation); ``committed`` is counted *after*
    truncation by EOS, stop string or limit, so it can be smaller than ``accepted + 1``.
    """

    request: str
    drafted: int
    accepted: int
    committed: int
    free: int = 0
