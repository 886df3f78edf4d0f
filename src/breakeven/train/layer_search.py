"""Which layers a verifier can draft without, found on the artifact's texts by what it would pay.

A draft token is right when the shortened pass chooses what the full pass chose. That is measured
teacher-forced, for all places of a text in one pass, each row over the full model's keys and
values of its prefix, as in decoding. From agreement and the price of the layers that are left
follows the speed in tokens per plain step (ALGORITHMS 8.2); layers are dropped one at a time, the
least missed first, and the best set on the way is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.cost.breakeven import expected_committed
from breakeven.data.artifact import Row
from breakeven.progress import meter
from breakeven.train.clean import Clean, CleanStream, stacked
from breakeven.verifier.cache import ReadOnlyPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Part
from breakeven.verifier.rows import Rows


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set of layers to skip: how often it agrees with the verifier, and what it promises.

    ``speed`` is tokens per plain step at the best ``k``.
    """

    skip: tuple[int, ...]
    agreement: float
    k: int
    speed: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Shares of a plain step: one layer, the head, and a verify pass of K + 1 rows."""

    layer: float
    head: float
    verify: Sequence[float]  # of 1, 2, 3, … drafts

    def best(self, skip: tuple[int, ...], agreement: float, layers: int) -> Candidate:
        """The K that pays most at a constant agreement.

        >>> found = Prices(0.03, 0.1, [1.05, 1.1]).best((0,) * 15, 0.8, 30)
        >>> found.k, round(found.speed, 3)
        (1, 1.125)
        """
        draft = self.layer * (layers - len(skip)) + self.head
        speeds = {
            k: expected_committed([agreement**j for j in range(1, k + 1)]) / (k * draft + verify)
            for k, verify in enumerate(self.verify, start=1)
        }
        k = max(speeds, key=lambda k: speeds[k])
        return Candidate(skip, agreement, k, speeds[k])


class Agreement:
    """How often a part of the verifier chooses the verifier's token, on fixed texts."""

    def __init__(self, verifier: LeanVerifier, rows: Sequence[Row]) -> None:
        clean = CleanStream(verifier, with_keys=True)
        self._verifier = verifier
        self._texts = [(row, clean.of(row)) for row in rows]

    @torch.inference_mode()
    def of(self, part: Part) -> float:
        """The share of the continuations' tokens that the part chooses as well."""
        right = total = 0
        for row, stream in self._texts:
            first = len(row.prompt_ids) - 1
            chosen, truth = self._choices(stream, first, part), stream.token_ids[first + 1 :]
            right += int((chosen == truth).sum())
            total += len(truth)
        return right / max(1, total)

    def _choices(self, stream: Clean, first: int, part: Part) -> Tensor:
        """Choices at the places ``first .. L - 2``, each on its own over the prefix's cache."""
        places = torch.arange(first, len(stream.token_ids) - 1)[None]
        rows = Rows(
            token_ids=stream.token_ids[first:-1][None],
            positions=places,
            sees=torch.eye(places.shape[1], dtype=torch.bool),
            past=places,
        )
        past = ReadOnlyPast(stacked([stream], self._verifier))
        hidden = self._verifier.body(rows, past, part=part).hidden
        return self._verifier.choose(hidden)[0].cpu()


def search(verifier: LeanVerifier, rows: Sequence[Row], prices: Prices, most: int) -> Candidate:
    """The best set of at most ``most`` layers to skip on the texts of ``rows``."""
    agreement, layers = Agreement(verifier, rows), verifier.shape.layers
    best = prices.best((), 1.0, layers)
    skip: tuple[int, ...] = ()
    total = sum(layers - dropped for dropped in range(most))
    with meter("layers to skip", total) as bar:
        for _ in range(most):
            found = []
            for candidate in _one_more(skip, layers):
                left = Part(tuple(i for i in range(layers) if i not in candidate))
                found.append(prices.best(candidate, agreement.of(left), layers))
                bar.advance()
            chosen = max(found, key=lambda c: c.agreement)
            skip = chosen.skip
            best = max(best, chosen, key=lambda c: c.speed if c.skip else 0.0)
            bar.note(f"{len(skip)} skipped: {chosen.agreement:.0%} agree, {chosen.speed:.2f}×")
    return best


def _one_more(skip: tuple[int, ...], layers: int) -> Iterator[tuple[int, ...]]:
    for layer in range(layers):
        if layer not in skip:
            yield tuple(sorted((*skip, layer)))
