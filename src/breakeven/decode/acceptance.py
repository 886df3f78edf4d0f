"""Acceptance rules for sampled drafts: which drafts are kept, and where the next token comes from.

A rule sees the verifier's distributions ``p`` ``[K + 1, V]``, the drafter's ``q`` ``[K, V]``,
exactly as its tokens were sampled, and the ``K`` drafted tokens. Both rules give the verifier's
own law, whatever ``q`` is; ``measure/enumeration.py`` proves it on a toy vocabulary.

- :class:`TokenWise` (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318): draft k
  is kept with probability ``min(1, p_k / q_k)``, up to the first that is not.
- :class:`Block` (Sun et al., arXiv 2403.10444): the drafts are judged together, and the *longest*
  prefix that passes is kept. It never keeps fewer on average.

Either ends a round with one token from ``residual``: what of ``p`` the drafts did not cover.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class Rule(ABC):
    """One acceptance rule."""

    @abstractmethod
    def thresholds(self, p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
        """``h`` ``[K]``: prefix k passes when its uniform number is at most ``h[k - 1]``."""

    @abstractmethod
    def accepted(self, passes: Sequence[bool]) -> int:
        """How many drafts are kept, from which prefixes passed."""

    @abstractmethod
    def residual(self, p: Tensor, q: Tensor, tokens: Sequence[int], accepted: int) -> Tensor:
        """``[V]``: the distribution of the token after ``accepted`` drafts."""

    def decide(
        self, p: Tensor, q: Tensor, tokens: Sequence[int], uniforms: Tensor
    ) -> tuple[int, Tensor]:
        """Accepted drafts and the next token's distribution, for ``uniforms`` ``[K]`` in 0–1."""
        kept = self.accepted((uniforms <= self.thresholds(p, q, tokens)).tolist())
        return kept, self.residual(p, q, tokens, kept)


class TokenWise(Rule):
    """Each draft alone, until the first rejection.

    >>> p = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    >>> q = torch.tensor([[0.8, 0.2]])
    >>> TokenWise().thresholds(p, q, [0]).tolist(), TokenWise().residual(p, q, [0], 0).tolist()
    ([0.625], [0.0, 1.0])
    """

    def thresholds(self, p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
        """``min(1, p / q)`` of each drafted token."""
        return ratios(p, q, tokens).clamp(max=1.0)

    def accepted(self, passes: Sequence[bool]) -> int:
        """The passes before the first failure."""
        return [*passes, False].index(False)

    def residual(self, p: Tensor, q: Tensor, tokens: Sequence[int], accepted: int) -> Tensor:
        """``(p - q)+`` normalised; ``p`` itself after the last draft."""
        if accepted == len(tokens):
            return p[accepted]
        return normalised(p[accepted] - q[accepted])


class Block(Rule):
    """The longest prefix that passes, judged with what the prefix has earned so far."""

    def thresholds(self, p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
        """``Z / (Z + 1 - w)`` with Z the mass of ``(w p - q)+`` at the next position."""
        weights = self.weights(p, q, tokens)
        passing = []
        for k, weight in enumerate(weights[1:], start=1):
            if k == len(tokens):
                passing.append(weight)
                continue
            left = (weight * p[k] - q[k]).clamp(min=0).sum()
            whole = left + 1 - weight
            passing.append(left / whole if whole > 0 else torch.ones_like(weight))
        return torch.stack(passing) if passing else p.new_zeros(0)

    def accepted(self, passes: Sequence[bool]) -> int:
        """The last pass, whatever failed before it."""
        return max((k for k, passed in enumerate(passes, start=1) if passed), default=0)

    def residual(self, p: Tensor, q: Tensor, tokens: Sequence[int], accepted: int) -> Tensor:
        """``(w p - q)+`` normalised, w the weight of the kept prefix."""
        if accepted == len(tokens):
            return p[accepted]
        weight = self.weights(p, q, tokens)[accepted]
        return normalised(weight * p[accepted] - q[accepted])

    @staticmethod
    def weights(p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
        """``w_0 … w_K``: the running product of ratios, cut to 1 after every factor."""
        weights = [p.new_ones(())]
        for ratio in ratios(p, q, tokens):
            weights.append((weights[-1] * ratio).clamp(max=1.0))
        return torch.stack(weights)


def ratios(p: Tensor, q: Tensor, tokens: Sequence[int]) -> Tensor:
    """``[K]``: the verifier's over the drafter's probability of each drafted token."""
    index = torch.tensor(list(tokens), dtype=torch.long, device=p.device)
    rows = torch.arange(len(index), device=p.device)
    return p[rows, index] / q[rows, index]


def normalised(mass: Tensor) -> Tensor:
    """The positive part as a distribution."""
    positive = mass.clamp(min=0)
    return positive / positive.sum()


RULES: dict[str, Rule] = {"residual": TokenWise(), "block": Block()}
"""The rules by name."""
