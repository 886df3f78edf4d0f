"""What a drafter is: whatever proposes tokens. It never decides any."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from breakeven.core import Draft, Verified
from breakeven.cost.ledger import Ledger
from breakeven.verifier.cache import KVCache
from breakeven.verifier.interface import Part, Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows

Enough = Callable[[Sequence[Sequence[float]]], bool]
"""Told the confidences of each request's drafts so far: whether another pass is not worth it.

A draft that has reached its answer's end has none.
"""


def never(confidences: Sequence[Sequence[float]]) -> bool:
    """No: draft as many tokens as were asked for."""
    return False


@dataclass(slots=True)
class Context:
    """What a drafter may look at: committed tokens and the verifier's cache of them.

    ``tokens[b]`` are the committed tokens of the request in slot b, prompt included; the last
    one is the *root*. ``cache`` is the window of active requests, with
    ``cache.lengths[b] == len(tokens[b]) - 1``. Rows written beyond the lengths are scratch.
    ``ends[b]`` are the tokens that end the request's answer, where any do. ``enough`` is the
    policy's word on drafting token by token.
    """

    verifier: Verifier
    tokens: list[list[int]]
    cache: KVCache
    ledger: Ledger
    ends: list[frozenset[int]] = field(default_factory=list)
    enough: Enough = never

    @property
    def batch(self) -> int:
        """Number of active requests."""
        return len(self.tokens)

    def ends_of(self, slot: int) -> frozenset[int]:
        """The tokens that end the answer in ``slot``."""
        return self.ends[slot] if slot < len(self.ends) else frozenset()

    def done(self, drafts: Sequence[Sequence[int]], sure: Sequence[Sequence[float]]) -> bool:
        """Whether a sequential drafter is to stop, having drafted these with these confidences.

        It is when every draft has reached its answer's end, and when the policy has enough.
        """
        going = [
            own if self.ends_of(slot).isdisjoint(drafts[slot]) else ()
            for slot, own in enumerate(sure)
        ]
        return not any(going) or self.enough(going)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Chains of drafted tokens that the host has not seen: ids ``[B, K]`` on the device.

    ``counts[b]`` of request b's are drafts; ``free`` and ``confidences``, where they are known, as
    in :class:`Draft`.
    """

    ids: Tensor
    counts: Sequence[int]
    free: int = 0
    confidences: Sequence[tuple[float, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Boarding:
    """A verify pass as a drafter would have it: the chain's rows first, then rows of its own.

    ``adapter`` acts where the rows' gate is on, which is never in the chain. ``part`` says that
    the drafter has run the first blocks of the chain's rows already.
    """

    rows: Rows
    adapter: RowLoRA | None = None
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Aboard:
    """What a pass says of the rows that rode behind its chain: ids ``[B, extra]``, their states.

    ``choices`` are the arg-max of each row's logits, ``hidden`` ``[B, extra, H]`` the states after
    the final norm.
    """

    choices: Tensor
    hidden: Tensor


class Drafter(ABC):
    """One drafting method.

    The decoder calls :meth:`reserve` once, :meth:`begin` when requests enter, then in each round
    :meth:`propose` and :meth:`observe`. A drafter never sees the future and never touches
    verifier state it was not given.
    """

    name: str = "drafter"
    needs_hidden: bool = False
    """Whether :meth:`begin` and :meth:`observe` need the verifier's hidden states."""
    free: int = 0
    """Leading draft tokens that are the verifier's own decisions (0 or 1), see :class:`Draft`."""
    sequential: bool = False
    """Whether each drafted token takes a pass of its own; else one pass drafts them all."""
    longest: int | None = None
    """The most tokens its passes can draft in a round; None: any number."""
    looks_up: bool = False
    """Whether some of its drafts take no pass (:meth:`glimpse`); they may be any length."""
    aboard: Literal["nothing", "rows", "states"] = "nothing"
    """What of its own :meth:`board` brings to the verify pass: rows, whatever tokens are verified,
    or the states of its draft passes, which go with the tokens that it drafted alone."""
    scratch_rows: int = 0
    """Rows beyond K that a draft pass writes behind the verifier's cache."""
    turn: object = None
    """Whose requests it drafts for now; what it keeps of them is of no use to others."""

    @property
    def layout(self) -> Mapping[str, int]:
        """How it lays out its rows where it may choose that by itself; else nothing.

        Given as options of its maker these make a drafter that drafts alike.
        """
        return {}

    def reserve(self, batch: int, capacity: int) -> None:  # noqa: B027 - optional hook
        """Make room for ``batch`` requests of up to ``capacity`` tokens."""

    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:  # noqa: B027
        """Requests ``start..context.batch-1`` have entered: their prompt is cached.

        ``hidden`` is ``[n, P, H]`` (after the final norm, right-padded) for their prompts when
        ``needs_hidden``; the root of each is already in ``context.tokens``.
        """

    def glimpse(self, context: Context, k: int) -> list[Draft] | None:
        """What can be drafted without a pass, at most ``k`` tokens each; None: a pass is needed.

        Each such draft says how long its ``match`` is, 0 when it is empty.
        """
        return None

    @abstractmethod
    def propose(self, context: Context, k: int) -> list[Draft]:
        """At most ``k`` tokens for each active request.

        A sequential drafter stops earlier where ``context.enough`` says so.

        A draft with ``free=1`` promises that the root's key/value row now stands, computed by the
        verifier's own weights, in the slot behind the cache length. All drafts of a round have
        the same ``free``.
        """

    def sketch(self, context: Context, k: int) -> Sketch | None:
        """The chains of :meth:`propose` left on the device; None: :meth:`propose` has them."""
        return None

    def draft_along(self, context: Context, drafts: Sequence[Draft]) -> None:
        """Run the passes of :meth:`propose` along these tokens instead of its own.

        For a drafter with states aboard, so that another's tokens can be verified at its price.
        """
        raise NotImplementedError(f"{self.name} has no states aboard the verify pass")

    def board(self, context: Context, rows: Rows) -> Boarding:
        """The verify pass of ``rows``, and what of the drafter's rides in it (a chain's only)."""
        return Boarding(rows)

    def land(  # noqa: B027 - optional hook
        self, aboard: Aboard, accepted: Tensor, tokens: Tensor
    ) -> None:
        """The drafter's rows in the pass, and its outcome, on the same device.

        ``accepted`` ``[B]`` are the drafts accepted, ``tokens`` ``[B]`` the verifier's own behind
        them.
        """

    def observe(  # noqa: B027 - optional hook
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        """The round's outcome, after ``context.tokens`` was extended.

        Called after every round, also where the policy let nothing be drafted. ``hidden`` is
        ``[B, W, H]``: row j is the state at the j-th row of the verify pass, in a tree at the
        j-th row of the accepted path.
        """

    def end(self, context: Context, slot: int) -> None:  # noqa: B027 - optional hook
        """The request in ``slot`` has its answer: ``context.tokens[slot]``, whole."""

    def forget(self) -> None:  # noqa: B027 - optional hook
        """Forget earlier requests: benchmarks decode each prompt as if it were the first."""

    def move(self, source: int, target: int) -> None:  # noqa: B027 - optional hook
        """The request in slot ``source`` now lives in slot ``target``."""


class LookupDrafter(Drafter):
    """A drafter without passes: :meth:`glimpse` is all it does."""

    looks_up = True

    @abstractmethod
    def glimpse(self, context: Context, k: int) -> list[Draft]:
        """At most ``k`` tokens for each active request, and how long the match was."""

    def propose(self, context: Context, k: int) -> list[Draft]:
        """The same."""
        return self.glimpse(context, k)
