"""Is an acceptance rule lossless? Enumerate everything on a toy vocabulary and compare.

Every draft, every outcome of the rule's dice and every next token has a probability that can be
written down, so the law of what a round emits is known exactly: no sampling, no tolerance for
luck. It has to be the verifier's own (ALGORITHMS 7.4). A rule that is slightly wrong is off by
1e-2 and more, which the negative controls of the tests make sure of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from breakeven.decode.acceptance import Rule

Law = Callable[[tuple[int, ...]], Tensor]
"""A language model: the next token's distribution ``[V]`` after a prefix."""

EXACT = 1e-12


@dataclass(frozen=True, slots=True)
class Enumerated:
    """``error`` is the largest difference between the probability of any text of K + 1 tokens and
    the verifier's; ``accepted`` the mean number of accepted drafts."""

    error: float
    accepted: float

    @property
    def lossless(self) -> bool:
        """Whether the rule gives the verifier's law."""
        return self.error <= EXACT


def enumerate_rule(
    rule: Rule, verifier: Law, drafter: Law, *, vocabulary: int, drafts: int
) -> Enumerated:
    """The law of a round continued by the verifier to ``drafts`` + 1 tokens, against its own."""
    texts = list(product(range(vocabulary), repeat=drafts + 1))
    emitted = dict.fromkeys(texts, 0.0)
    mean = 0.0
    for draft in product(range(vocabulary), repeat=drafts):
        q = torch.stack([drafter(draft[:i]) for i in range(drafts)])
        p = torch.stack([verifier(draft[:i]) for i in range(drafts + 1)])
        chance = probability(drafter, draft)
        if chance == 0.0:
            continue
        for kept, share in outcomes(rule, rule.thresholds(p, q, draft)):
            mean += chance * share * kept
            following = rule.residual(p, q, draft, kept).tolist()
            for token, weight in enumerate(following):
                if weight > 0:
                    prefix = (*draft[:kept], token)
                    for text, rest in continuations(verifier, prefix, vocabulary, drafts + 1):
                        emitted[text] += chance * share * weight * rest
    error = max(abs(emitted[text] - probability(verifier, text)) for text in texts)
    return Enumerated(error, mean)


def outcomes(rule: Rule, thresholds: Tensor) -> Iterator[tuple[int, float]]:
    """Every number of accepted drafts with its probability, over all the rule's dice."""
    shares: dict[int, float] = {}
    for passes in product((True, False), repeat=len(thresholds)):
        chance = 1.0
        for passed, h in zip(passes, thresholds.tolist(), strict=True):
            chance *= h if passed else 1 - h
        if chance > 0:
            kept = rule.accepted(passes)
            shares[kept] = shares.get(kept, 0.0) + chance
    yield from shares.items()


def continuations(
    verifier: Law, prefix: tuple[int, ...], vocabulary: int, length: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every text of ``length`` tokens that begins with ``prefix``, as the verifier goes on."""
    for tail in product(range(vocabulary), repeat=length - len(prefix)):
        text = (*prefix, *tail)
        yield text, probability(verifier, text, len(prefix))


def probability(law: Law, text: Sequence[int], start: int = 0) -> float:
    """Of ``text[start:]`` after ``text[:start]``."""
    chance = 1.0
    for i in range(start, len(text)):
        chance *= float(law(tuple(text[:i]))[text[i]])
    return chance


def toy_law(vocabulary: int, length: int, seed: int, *, factorised: bool = False) -> Law:
    """A random law in float64; ``factorised`` as of a block drafter, blind to what it drafted.

    >>> law = toy_law(3, 2, seed=0)
    >>> round(float(law((1,)).sum()), 12)
    1.0
    """
    generator = torch.Generator().manual_seed(seed)
    table: dict[tuple[int, ...], Tensor] = {}
    for size in range(length + 1):
        for prefix in product(range(vocabulary), repeat=size):
            logits = 1.5 * torch.randn(vocabulary, generator=generator, dtype=torch.float64)
            table[prefix] = logits.softmax(0)
    if factorised:
        return lambda prefix: table[(0,) * len(prefix)]
    return lambda prefix: table[prefix]
