"""Which layers a verifier can draft with, found on the artifact's texts by what it would pay.

A draft token is right when the shortened pass chooses what the full pass chose. That is measured
teacher-forced, for all places of a text in one pass, each row over the full model's keys and
values of its prefix, as in decoding. From agreement and the measured price of the layers that are
left follows the speed in tokens per plain step (ALGORITHMS 8.2). To skip, layers are dropped one
at a time, the least missed first; to exit early, every exit is tried. The best is kept, also when
it does not pay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.core import Phase
from breakeven.cost.breakeven import expected_committed
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row
from breakeven.progress import meter
from breakeven.train.clean import Clean, CleanStream, stacked
from breakeven.verifier.cache import ReadOnlyPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.interface import Part
from breakeven.verifier.rows import Rows, chain
from breakeven.verifier.timing import quick_curve

LONGEST = 8  # drafts per round that are considered


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set of layers to leave out: how often it agrees with the verifier, what it promises.

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

    @classmethod
    def measure(cls, verifier: LeanVerifier, rounds: int = 15) -> Prices:
        """From plain steps, steps of half the layers, and passes of several widths."""
        curve = quick_curve(verifier, LONGEST + 1)
        layers = verifier.shape.layers
        half = Part(tuple(range(layers // 2)))
        times: dict[int, list[float]] = {layers: [], len(half.layers): []}
        cache = verifier.new_cache(1, 1)
        row = chain(torch.zeros(1, 1, dtype=torch.long), cache.lengths)
        for _ in range(rounds):
            for part in (None, half):
                ledger = Ledger()
                verifier.run(Phase.DRAFT, row, cache, ledger, logits="choices", part=part)
                times[len(half.layers) if part else layers].append(ledger.passes[0].seconds)
        whole, less = (sorted(times[n])[rounds // 2] for n in (layers, len(half.layers)))
        layer = max(0.0, whole - less) / max(1, layers - len(half.layers)) / whole
        verify = [curve.relative(k + 1) for k in range(1, LONGEST + 1)]
        return cls(layer, max(0.0, 1 - layers * layer), verify)

    def best(
        self, skip: tuple[int, ...], agreement: float, layers: int, *, reused: bool = False
    ) -> Candidate:
        """The K that pays most at a constant agreement.

        ``reused``: the drafts' layers are not run again by verification, but once for the last
        draft (early exit).

        >>> prices = Prices(0.03, 0.1, [1.05, 1.1])
        >>> found = prices.best((0,) * 15, 0.8, 30)
        >>> found.k, round(found.speed, 3)
        (1, 1.125)
        >>> round(prices.best((0,) * 15, 0.8, 30, reused=True).speed, 3)
        1.141
        """
        left = self.layer * (layers - len(skip))
        speeds = {}
        for k, verify in enumerate(self.verify, start=1):
            price = k * (left + self.head) + verify
            if reused:
                price += left - verify * left
            speeds[k] = expected_committed([agreement**j for j in range(1, k + 1)]) / price
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


def tries(drafter: str, layers: int, most: int = 1) -> int:
    """How many sets of layers a search compares.

    >>> tries("layer-skip", 30, 2), tries("early-exit", 30)
    (59, 29)
    """
    if drafter == "early-exit":
        return layers - 1
    return sum(layers - dropped for dropped in range(most))


def seconds_each(verifier: LeanVerifier, rows: Sequence[Row]) -> float:
    """Seconds of comparing one set of layers on the texts of ``rows``, the whole model's here."""
    agreement = Agreement(verifier, rows)
    began = time.perf_counter()
    agreement.of(Part(tuple(range(verifier.shape.layers))))
    return time.perf_counter() - began


def skippable(
    verifier: LeanVerifier, rows: Sequence[Row], prices: Prices, most: int
) -> list[Candidate]:
    """The best set of 1, 2, … ``most`` layers to skip on the texts of ``rows``."""
    agreement, layers = Agreement(verifier, rows), verifier.shape.layers
    path: list[Candidate] = []
    with meter("layers to skip", tries("layer-skip", layers, most)) as bar:
        for _ in range(most):
            found = []
            for skip in _one_more(path[-1].skip if path else (), layers):
                left = Part(tuple(i for i in range(layers) if i not in skip))
                found.append(prices.best(skip, agreement.of(left), layers))
                bar.advance()
            path.append(max(found, key=lambda c: c.agreement))
            last = path[-1]
            bar.note(f"{len(last.skip)} skipped: {last.agreement:.0%} agree, {last.speed:.2f}×")
    return path


def exits(verifier: LeanVerifier, rows: Sequence[Row], prices: Prices) -> list[Candidate]:
    """Every exit, after 1, 2, … layers."""
    agreement, layers = Agreement(verifier, rows), verifier.shape.layers
    found = []
    with meter("exits", tries("early-exit", layers)) as bar:
        for last in range(1, layers):
            skip = tuple(range(last, layers))
            part = Part(tuple(range(last)))
            found.append(prices.best(skip, agreement.of(part), layers, reused=True))
            bar.advance()
    return found


def _one_more(skip: tuple[int, ...], layers: int) -> Iterator[tuple[int, ...]]:
    for layer in range(layers):
        if layer not in skip:
            yield tuple(sorted((*skip, layer)))
