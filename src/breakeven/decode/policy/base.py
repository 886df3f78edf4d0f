"""What a draft-length policy is.

Policies obey the non-anticipating rule (ALGORITHMS 7.6): a choice may rest on earlier rounds, on
prices, on what a draft was found from and on its confidences, never on whether the verifier will
accept it. With greedy acceptance no choice can change the output; the rule keeps that true of
sampling as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.core import Choice, Draft, Pass, Round
from breakeven.drafters.base import Drafter
from breakeven.verifier.interface import Verifier


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is known of one request before its next round.

    ``match`` and ``offered`` (tokens) describe a draft that took no pass; ``match`` is None where
    drafting would take one.
    """

    request: str
    match: int | None = None
    offered: int = 0


class Policy(ABC):
    """One way to choose draft lengths. All its state comes from what it is told here.

    :meth:`choose` and :meth:`observe` alternate; a policy that is told the same rounds again
    chooses the same again (see :func:`~breakeven.decode.policy.replay.replay`).
    """

    longest: int
    """The most tokens it ever lets be drafted."""

    def prepare(self, verifier: Verifier, drafter: Drafter) -> None:  # noqa: B027 - optional hook
        """Called when decoding starts; measures what the policy needs, once."""

    @abstractmethod
    def choose(self, prospects: Sequence[Prospect], context: int) -> Choice:
        """The draft length of the next round, the same for all its requests.

        ``context`` is the longest cached length, as in :class:`~breakeven.core.Pass`.
        """

    def enough(self, confidences: Sequence[Sequence[float]]) -> bool:
        """Whether drafting, token by token, should stop; asked after each token.

        ``confidences[b]`` are those of request b's tokens in this round, none once its answer has
        ended.
        """
        return False

    def trim(self, draft: Draft) -> Draft:
        """Cut a finished draft before it is verified."""
        return draft

    def observe(  # noqa: B027 - optional hook
        self, passes: Sequence[Pass], rounds: Sequence[Round]
    ) -> None:
        """The round's passes and the account of each of its requests."""

    def end(self, request: str) -> None:  # noqa: B027 - optional hook
        """A request has ended."""
