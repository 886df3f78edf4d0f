"""Training of ``peft-bd-gated``: noised rows with gradient over a clean stream without.

The clean stream (prompt and continuation) is the verifier's own and is computed once
(:mod:`~breakeven.train.clean`). Each step draws anchors in the continuation; behind each anchor
stand M mask rows that see the clean keys and values up to the anchor, exactly as a draft pass
with that root would (ALGORITHMS 1.3, 1.4). Mask j at position ``anchor + j`` is asked for token
``anchor + j + 1``: the token right behind the anchor is the verifier's to give, for free.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.drafters.peft_bd import GatedBlockDrafter, MaskBlock
from breakeven.train.clean import Clean, CleanStream, padded, stacked
from breakeven.train.loss import token_losses, widened
from breakeven.train.objective import Judged, Objective
from breakeven.train.recipe import PeftBdSettings
from breakeven.train.score import Score
from breakeven.verifier.cache import ReadOnlyPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.lora import LoRASpec, RowLoRA
from breakeven.verifier.rows import noised_blocks


class PeftBdObjective(Objective):
    """Loss against the verifier's choices, weighted ``gamma^(k-1)`` by mask position k."""

    name = "peft-bd-gated"

    def __init__(
        self,
        verifier: LeanVerifier,
        settings: PeftBdSettings,
        clean: CleanStream,
        identity: Identity | None = None,
    ) -> None:
        super().__init__()
        self._verifier, self._settings, self._clean = verifier, settings, clean
        self._identity = identity
        self.drafts = settings.masks + 1
        spec = lora_spec(settings, verifier.shape.layers)
        self.adapter = RowLoRA(verifier.architecture, spec).to(verifier.device, verifier.dtype)
        with torch.no_grad():
            self.adapter.mask_vector.copy_(_mean_embedding(verifier))

    def labels(self, row: Row) -> int:
        """Anchors leave room for the free token and at least one label behind them."""
        return max(0, len(row.continuation_ids) - 2)

    def forward(self, rows: Sequence[Row], generator: torch.Generator) -> Judged:
        """One pass over ``anchors`` blocks of ``masks`` rows in each text."""
        streams = [self._clean.of(row) for row in rows]
        anchors = self._anchors(rows, generator)
        labels = self._labels(streams, anchors)  # [B, A, M], -1 where there is none
        hidden = self.states(streams, anchors.clamp(min=0))
        truth = self._truth(streams, anchors)[labels >= 0] if self._settings.soft else None
        return self._judge(hidden, labels.to(hidden.device), truth)

    def states(self, streams: Sequence[Clean], anchors: Tensor) -> Tensor:
        """``[B, A, M, H]`` states of the mask rows behind ``[B, A]`` anchors."""
        masks = self._settings.masks
        layout = noised_blocks(anchors, masks, causal_block=self._settings.causal)
        past = ReadOnlyPast(stacked(streams, self._verifier))
        out = self._verifier.body(layout.to(self._verifier.device), past, self.adapter)
        return out.hidden.view(*anchors.shape, masks, -1)

    def drafter(self) -> GatedBlockDrafter:
        """The adapter as it stands, shared and not copied."""
        block = MaskBlock(self._settings.masks, self._settings.causal)
        return GatedBlockDrafter(self.adapter, block, self._identity)

    def save(self, folder: Path) -> None:
        """Write the drafter's folder."""
        self.drafter().save(folder)

    def _anchors(self, rows: Sequence[Row], generator: torch.Generator) -> Tensor:
        """``[B, A]`` roots drawn without replacement from the continuation; -1 fills up."""
        drawn = []
        for row in rows:
            order = torch.randperm(self.labels(row), generator=generator)
            drawn.append(order[: self._settings.anchors].sort().values + len(row.prompt_ids))
        return torch.nn.utils.rnn.pad_sequence(drawn, batch_first=True, padding_value=-1)

    def _labels(self, streams: Sequence[Clean], anchors: Tensor) -> Tensor:
        texts = padded([stream.token_ids for stream in streams])
        lengths = torch.tensor([len(stream.token_ids) for stream in streams])
        index = anchors[:, :, None] + 2 + torch.arange(self._settings.masks)  # [B, A, M]
        valid = (anchors[:, :, None] >= 0) & (index < lengths[:, None, None])
        found = texts.gather(1, index.clamp(0, texts.shape[1] - 1).flatten(1)).view_as(index)
        return torch.where(valid, found, -1)

    @torch.no_grad()
    def _truth(self, streams: Sequence[Clean], anchors: Tensor) -> Tensor:
        """``[B, A, M, H]`` states from which the verifier chose the labels."""
        states = padded([stream.hidden for stream in streams], self._verifier.dtype)
        index = (anchors[:, :, None] + 1 + torch.arange(self._settings.masks)).flatten(1)
        index = index.clamp(0, states.shape[1] - 1)[:, :, None].expand(-1, -1, states.shape[2])
        return states.gather(1, index).view(*anchors.shape, self._settings.masks, -1)

    def _judge(self, hidden: Tensor, labels: Tensor, truth: Tensor | None) -> Judged:
        """The head runs on rows with a label only; ``truth`` ``[N, H]`` are the verifier's."""
        valid = labels >= 0
        logits = self._verifier.head(hidden[valid])  # [N, V]
        taught = None
        if truth is not None:
            with torch.no_grad():
                taught = widened(self._verifier.head(truth)).log_softmax(dim=-1)
        losses = token_losses(logits, labels[valid], taught, self._settings.soft)
        offsets = torch.arange(self._settings.masks, device=hidden.device).expand_as(labels)
        weights = self._settings.gamma ** offsets[valid].to(losses.dtype)
        loss = (losses * weights).sum() / weights.sum()
        right = torch.zeros_like(valid)
        right[valid] = logits.detach().argmax(dim=-1) == labels[valid]
        return Judged(loss, Score.of(right.flatten(0, 1), valid.flatten(0, 1), free=1))


def lora_spec(settings: PeftBdSettings, layers: int) -> LoRASpec:
    """Rank, scale and place of the adapter in a verifier of so many layers."""
    first = max(0, layers - settings.layers) if settings.layers else 0
    chosen = tuple(range(first, layers)) if first else None
    return LoRASpec(rank=settings.rank, alpha=settings.alpha, layers=chosen)


def _mean_embedding(verifier: LeanVerifier) -> Tensor:
    """Where an unknown token would stand: the mean of the embedding table, ``[H]``."""
    return verifier.embed(torch.arange(verifier.shape.vocab_size, device=verifier.device)).mean(0)
