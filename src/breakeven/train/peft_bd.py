"""Training of PEFT-BD: noised blocks behind roots of a clean text (ALGORITHMS 1.3 to 1.7).

Gated (``peft-bd-gated``, V2), the clean stream is the verifier's own: it is computed once per
text without gradient (:mod:`~breakeven.train.clean`), and the blocks read its keys and values,
exactly as a draft pass with that root would. Ungated (``peft-bd``, V1), the adapter acts in the
clean stream as well, so both streams run in one pass with gradient, as published.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.peft_bd import BlockDrafter, GatedPeftBD, PeftBD
from breakeven.train.blocks import Blocks, cut, draw_anchors, draw_hidden, possible
from breakeven.train.clean import Clean, CleanStream, padded, stacked
from breakeven.train.loss import token_losses, widened
from breakeven.train.objective import Judged, Objective
from breakeven.train.recipe import BlockSettings, LossSettings
from breakeven.train.score import Score
from breakeven.train.weighting import block_loss
from breakeven.verifier.cache import NoPast, ReadOnlyPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.lora import LoRASpec, RowLoRA
from breakeven.verifier.rows import noised_blocks, two_streams

BLOCKS_PER_PASS = 32  # when all roots of a text are evaluated


class BlockObjective(Objective):
    """Loss of the guesses of blocks against the verifier's choices."""

    def __init__(
        self,
        verifier: LeanVerifier,
        settings: LossSettings,
        clean: CleanStream,
        plan: BlockPlan,
        identity: Identity | None,
    ) -> None:
        super().__init__(verifier)
        self._verifier, self._settings, self._clean = verifier, settings, clean
        self._identity, self.plan = identity, plan
        self.drafts, self.free = plan.most, plan.free
        self.noised = settings.mask_ratio[0] < 1.0

    @property
    @abstractmethod
    def lora(self) -> RowLoRA:
        """The adapter that the blocks run through."""

    def labels(self, row: Row) -> int:
        """Roots with something to guess behind them."""
        return len(possible(self.plan, row, self._settings.starts))

    def judge(self, rows: Sequence[Row], generator: torch.Generator) -> Judged:
        """One pass over the blocks drawn for this step; in evaluation all masks are masked."""
        settings, plan = self._settings, self.plan
        texts = padded([torch.tensor([*r.prompt_ids, *r.continuation_ids]) for r in rows])
        lengths = torch.tensor([len(r.prompt_ids) + len(r.continuation_ids) for r in rows])
        anchors = draw_anchors(plan, rows, settings.anchors, settings.starts, generator)
        size = (*anchors.shape, plan.masks)
        ratio = settings.mask_ratio if self.training else (1.0, 1.0)
        blocks = cut(plan, texts, lengths, anchors, draw_hidden(size, ratio, rows, generator))
        needs_truth = settings.soft + settings.tv > 0
        streams = [self._clean.of(row) for row in rows] if plan.gated or needs_truth else []
        states = self.states(texts, blocks, streams)[blocks.scored]
        truth = self._truth(streams, blocks) if needs_truth else None
        labels = blocks.labels.flatten(0, 1).to(states.device)
        return self._judge(states, labels, truth, blocks.covered)

    def right(self, row: Row) -> Tensor:
        """All roots of one text, a few dozen blocks at a time."""
        texts = torch.tensor([[*row.prompt_ids, *row.continuation_ids]])
        lengths = torch.tensor([texts.shape[1]])
        streams = [self._clean.of(row)] if self.plan.gated else []
        found = []
        for roots in possible(self.plan, row, "random").split(BLOCKS_PER_PASS):
            hidden = torch.ones(1, len(roots), self.plan.masks, dtype=torch.bool)
            blocks = cut(self.plan, texts, lengths, roots[None], hidden)
            named = self._verifier.choose(self.states(texts, blocks, streams)[0]).cpu()
            found.append(named == blocks.labels[0])
        return torch.cat(found) if found else torch.zeros(0, 1, dtype=torch.bool)

    def states(self, texts: Tensor, blocks: Blocks, streams: Sequence[Clean]) -> Tensor:
        """``[B, A, G, H]`` states of the rows that make the guesses."""
        shape, device = self.plan.shape, self._verifier.device
        layout = noised_blocks(blocks.anchors, shape, block_ids=blocks.ids, masked=blocks.masked)
        if self.plan.gated:
            past = ReadOnlyPast(stacked(streams, self._verifier))
            hidden = self._verifier.body(layout.to(device), past, self.lora).hidden
            length = 0
        else:
            both = two_streams(texts, layout, gated=False)
            hidden = self._verifier.body(both.to(device), NoPast(), self.lora).hidden
            length = texts.shape[1]
        return _gather(hidden, self._sources(blocks, length).to(device))

    def _sources(self, blocks: Blocks, length: int) -> Tensor:
        """``[B, A, G]``: the pass's rows that make the guesses, ``length`` clean rows in front."""
        plan, width = self.plan, self.plan.shape.width
        offsets = torch.tensor([plan.source(offset) for offset in plan.guesses])
        firsts = length + width * torch.arange(blocks.anchors.shape[1])[:, None]
        inside = (firsts + offsets - 1 + plan.shape.rooted).expand(len(blocks.anchors), -1, -1)
        root = (offsets == 0) & (not plan.shape.rooted)  # the root stands in the clean stream
        return torch.where(root, blocks.anchors[:, :, None], inside)

    @torch.no_grad()
    def _truth(self, streams: Sequence[Clean], blocks: Blocks) -> Tensor:
        """``[N, V]`` log-probabilities with which the verifier chose the scored labels."""
        states = padded([stream.hidden for stream in streams], self._verifier.dtype)
        index = blocks.anchors[:, :, None] + torch.tensor(list(self.plan.guesses)) - 1
        chosen = _gather(states, index.clamp(max=states.shape[1] - 1).to(states.device))
        return widened(self._verifier.head(chosen[blocks.scored])).log_softmax(dim=-1)

    def _judge(self, states: Tensor, labels: Tensor, truth: Tensor | None, covered: int) -> Judged:
        """From ``[N, H]`` states of the scored guesses and ``[blocks, G]`` labels, -1 elsewhere."""
        settings, valid = self._settings, labels >= 0
        logits = self._verifier.head(states)  # [N, V]
        found = token_losses(logits, labels[valid], truth, settings.soft, settings.tv)
        losses = torch.zeros(labels.shape, dtype=found.dtype, device=found.device)
        losses = losses.masked_scatter(valid, found)
        chances = torch.zeros_like(losses)
        if settings.weighting in ("surrogate", "prefix", "mixed"):
            own = widened(logits).log_softmax(dim=-1).gather(1, labels[valid][:, None])
            chances = chances.masked_scatter(valid, own.exp())
        loss, weight = block_loss(losses, chances, valid, settings.weighting, settings.gamma)
        right = torch.zeros_like(valid)
        right[valid] = logits.detach().argmax(dim=-1) == labels[valid]
        score = Score.of(right, valid, free=self.plan.free, targets=covered)
        return Judged(loss, score, weight)


class PeftBdObjective(BlockObjective):
    """Loss of an adapter and its mask vector."""

    def __init__(
        self,
        verifier: LeanVerifier,
        settings: BlockSettings,
        clean: CleanStream,
        identity: Identity | None = None,
        deployed: LeanVerifier | None = None,
    ) -> None:
        """``deployed`` is not needed: the adapter fits any precision."""
        super().__init__(verifier, settings, clean, settings.plan, identity)
        self._kind: type[BlockDrafter] = GatedPeftBD if self.plan.gated else PeftBD
        self.name = self._kind.name
        spec = lora_spec(settings, verifier.shape.layers)
        master = torch.promote_types(verifier.dtype, torch.float32)
        self.adapter = RowLoRA(verifier.architecture, spec).to(verifier.device, master)
        with torch.no_grad():
            self.adapter.mask_vector.copy_(_mean_embedding(verifier))

    @property
    def lora(self) -> RowLoRA:
        """The adapter that is trained."""
        return self.adapter

    def drafter(self) -> BlockDrafter:
        """The adapter as it stands, shared and not copied."""
        return self._kind(self.adapter, self.plan, self._identity)

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write the drafter's folder."""
        self.drafter().save(folder, dtype)


def lora_spec(settings: BlockSettings, layers: int) -> LoRASpec:
    """Rank, scale and place of the adapter in a verifier of so many layers."""
    first = max(0, layers - settings.layers) if settings.layers else 0
    chosen = tuple(range(first, layers)) if first else None
    late = settings.late and bool(first)
    return LoRASpec(rank=settings.rank, alpha=settings.alpha, layers=chosen, late=late)


def _mean_embedding(verifier: LeanVerifier) -> Tensor:
    """Where an unknown token would stand: the mean of the embedding table, ``[H]``."""
    table = verifier.embed(torch.arange(verifier.shape.vocab_size, device=verifier.device))
    return table.to(torch.promote_types(table.dtype, torch.float32)).mean(0)


def _gather(states: Tensor, index: Tensor) -> Tensor:
    """``[B, L, H]`` states at ``[B, A, G]`` rows: ``[B, A, G, H]``."""
    flat = index.flatten(1)[:, :, None].expand(-1, -1, states.shape[2])
    return states.gather(1, flat).view(*index.shape, states.shape[2])
