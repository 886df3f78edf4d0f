"""The words of the package, as small frozen records.

Nothing here imports anything of ours, and nothing here knows about tensors: the ledger, the
cost model, the decoder, the benchmark and the report all speak in these terms.

A *round* is draft → verify → accept → commit. The *root* is the last committed token, whose
key/value row is not in the cache yet. A round that proposes ``K`` tokens and accepts ``a`` of
them commits ``N = a + 1`` tokens: the accepted drafts and one token of the verifier's own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
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

    A chain has no ``parents``. In a tree ``parents[i]`` is the index of the token that token i
    follows, or -1 for the root; parents stand before their children, and siblings differ.

    ``confidences``, where a drafter has them, are 0–1, larger the surer it is of a token given
    those before it: its probability, or that of the token against its runner-up. ``match`` is how
    many tokens before the draft a model-free drafter found again elsewhere; None where the draft
    took a pass.

    >>> Draft((5, 6, 7), free=1).guesses
    (6, 7)
    """

    tokens: tuple[int, ...]
    free: int = 0
    parents: tuple[int, ...] | None = None
    confidences: tuple[float, ...] = ()
    match: int | None = None

    def __post_init__(self) -> None:
        assert self.free in (0, 1) and self.free <= len(self.tokens)
        assert len(self.confidences) in (0, len(self.tokens))
        if self.parents is not None:
            assert len(self.parents) == len(self.tokens)
            assert all(-1 <= parent < i for i, parent in enumerate(self.parents))
            assert self.parents[: self.free] == (-1,) * self.free
            assert -1 not in self.parents[self.free :] or not self.free

    @property
    def guesses(self) -> tuple[int, ...]:
        """The drafted tokens that verification may still reject."""
        return self.tokens[self.free :]

    @property
    def depths(self) -> tuple[int, ...]:
        """How many drafted tokens lead to each token, itself included.

        >>> Draft((5, 6, 7), parents=(-1, 0, 0)).depths
        (1, 2, 2)
        """
        if self.parents is None:
            return tuple(range(1, len(self.tokens) + 1))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def until(self, ends: Collection[int]) -> Draft:
        """A chain up to the first of ``ends``, which it keeps: behind it nothing counts.

        >>> Draft((5, 2, 7)).until({2}).tokens
        (5, 2)
        """
        if self.parents is None:
            for index, token in enumerate(self.tokens):
                if token in ends:
                    return self.clipped(index + 1)
        return self

    def clipped(self, limit: int) -> Draft:
        """The same draft with at most ``limit`` tokens; a tree keeps its first ones."""
        if len(self.tokens) <= limit:
            return self
        parents = None if self.parents is None else self.parents[:limit]
        return replace(
            self,
            tokens=self.tokens[:limit],
            parents=parents,
            confidences=self.confidences[:limit],
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """What the verifier said about one draft of one request.

    ``accepted`` counts leading drafted tokens that equal the verifier's choice (free ones
    included); ``token`` is the verifier's own next token after them: the *bonus* when every
    draft was accepted, else the *correction*. In a tree ``path`` holds the accepted tokens'
    indices; a chain has none.

    >>> v = Verified(draft=Draft((5, 6, 7)), accepted=2, token=9)
    >>> v.committed, v.tokens
    (3, (5, 6, 9))
    """

    draft: Draft
    accepted: int
    token: int
    path: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        assert self.draft.free <= self.accepted <= len(self.draft.tokens)
        assert self.path is None or len(self.path) == self.accepted

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens this round commits, before truncation by EOS, stop strings or limits."""
        if self.path is None:
            return (*self.draft.tokens[: self.accepted], self.token)
        return (*(self.draft.tokens[i] for i in self.path), self.token)

    @property
    def committed(self) -> int:
        """N = a + 1, before truncation."""
        return self.accepted + 1


class Reason(StrEnum):
    """Why a draft-length policy chose as it did."""

    FIXED = "fixed"  # always the same
    BEST = "best"  # the highest predicted speed
    PLAIN = "plain"  # drafting is not predicted to pay
    FURTHER = "further"  # one more than the best, to learn what the next position is worth
    PROBE = "probe"  # not predicted to pay, tried again all the same
    NOTHING = "nothing"  # the drafter had nothing to propose


@dataclass(frozen=True, slots=True)
class Choice:
    """How many tokens a policy let be drafted in one round, and why.

    ``k`` is before the limits of requests and drafter; 0 is a plain step. ``speed`` is what the
    policy predicted for it, relative to plain decoding (1 where it predicts nothing).

    >>> str(Choice(4, Reason.BEST, 1.25))
    'best k=4, predicted 1.25'
    """

    k: int
    reason: Reason = Reason.FIXED
    speed: float = 1.0

    def __str__(self) -> str:
        return f"{self.reason} k={self.k}, predicted {self.speed:.2f}"


@dataclass(frozen=True, slots=True)
class Round:
    """The account of one round of one request.

    ``drafted`` = K, ``accepted`` = a (both before truncation); ``committed`` is counted *after*
    truncation by EOS, stop string or limit, so it can be smaller than ``accepted + 1``. ``choice``
    is the policy's; ``match`` and ``offered`` are what it knew of a draft that took no pass (its
    match length and its tokens); ``seconds`` is the wall time of the round, of all its requests.
    ``confidences`` are those of the drafted tokens of a chain, where its drafter has them.
    """

    request: str
    drafted: int
    accepted: int
    committed: int
    free: int = 0
    choice: Choice | None = None
    match: int | None = None
    offered: int = 0
    seconds: float = 0.0
    confidences: tuple[float, ...] = ()
