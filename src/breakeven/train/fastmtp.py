"""Training of ``fastmtp``: K recursive steps over the verifier's hidden states.

Step k at origin i reads the state of step k - 1 (step 1: the verifier's h_i) and the embedding of
token i + k, and is asked for token i + k + 1 (ALGORITHMS 2.2). Origins lie where rounds can
start: behind the first token of the continuation. Labels outside the draft vocabulary are not
trained on and count as wrong.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.drafters.fastmtp import FastMTP, pruned_head
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.vocabulary import DraftVocabulary
from breakeven.train.clean import CleanStream, padded
from breakeven.train.cross_step import CrossSteps, recursed
from breakeven.train.loss import token_losses, widened
from breakeven.train.objective import Judged, Objective
from breakeven.train.recipe import FastMtpSettings
from breakeven.train.score import Score
from breakeven.train.warm_start import copy_last_layer, regress_input
from breakeven.verifier.cache import NoPast
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.rows import Rows, causal, chain


class FastMtpObjective(Objective):
    """Mean loss over the labels of all K steps, each weighing what its step does.

    With as many labels in each step this is ``sum_k alpha_k CE_k`` as published; a text has one
    label less in each further step.
    """

    name = "fastmtp"

    def __init__(
        self,
        verifier: LeanVerifier,
        settings: FastMtpSettings,
        clean: CleanStream,
        identity: Identity | None = None,
        deployed: LeanVerifier | None = None,
    ) -> None:
        """``deployed`` (default: ``verifier``) decodes with the drafter and gives it its type."""
        super().__init__(verifier)
        self._verifier, self._settings, self._clean = verifier, settings, clean
        self._identity, self._deployed = identity, deployed or verifier
        self.drafts = settings.steps
        self.layer = MTPLayer.of(self._deployed)
        self._vocabulary: DraftVocabulary | None = None
        self._head = pruned_head(verifier, None)

    def prepare(self, rows: Sequence[Row], corpus: Sequence[Row], *, fresh: bool) -> None:
        """Choose the draft vocabulary; give the layer its start."""
        settings, verifier = self._settings, self._verifier
        if settings.vocabulary is not None:
            texts = (row.continuation_ids for row in corpus)
            self._vocabulary = DraftVocabulary.frequent(
                texts, settings.vocabulary, verifier.shape.vocab_size
            )
            self._head = pruned_head(verifier, self._vocabulary)
            covered = self._vocabulary.coverage(row.continuation_ids for row in corpus)
            print(
                f"draft vocabulary: {len(self._vocabulary.ids):,} of {verifier.shape.vocab_size:,} "
                f"tokens, {covered:.1%} of the continuations' tokens",
                file=sys.stderr,
            )
        if fresh and settings.start != "random":
            copy_last_layer(self.layer, self._deployed)
        if fresh and settings.start == "regression":
            regress_input(self.layer, verifier, self._clean, rows[: settings.start_rows])

    def labels(self, row: Row) -> int:
        """Origins: the last prompt token and all but the last two of the continuation."""
        return max(0, len(row.continuation_ids) - 1)

    def judge(self, rows: Sequence[Row], generator: torch.Generator) -> Judged:
        """All origins of all rows, K steps deep. Draws nothing from ``generator``."""
        streams = [self._clean.of(row) for row in rows]
        texts = padded([s.token_ids for s in streams]).to(self._verifier.device)
        hidden = padded([s.hidden for s in streams], self._verifier.dtype)
        origins = self._origins(rows).to(texts.device)  # [B, O], -1 where there is none
        lengths = torch.tensor([len(s.token_ids) for s in streams], device=texts.device)
        truth = self._truth(hidden) if self._settings.soft else None
        total, weight = hidden.new_zeros(()), 0.0
        rights, valids = [], []
        for step, state in enumerate(self.states(texts, hidden, origins.clamp(min=0)), start=1):
            index, labels = _targets(texts, lengths, origins, step)
            taught = None if truth is None else _at(truth, index - 1)
            losses, right = self._judge(state, self._known(labels), taught)
            total = total + self._settings.weights[step - 1] * losses.sum()
            weight += self._settings.weights[step - 1] * losses.numel()
            rights.append(right.flatten())
            valids.append((labels >= 0).flatten())
        score = Score.of(torch.stack(rights, 1), torch.stack(valids, 1))
        return Judged(total / (weight or 1.0), score, weight)

    def right(self, row: Row) -> Tensor:
        """All origins of one text; a label outside the draft vocabulary cannot be right."""
        stream = self._clean.of(row)
        texts = stream.token_ids[None].to(self._verifier.device)
        hidden = stream.hidden[None].to(self._verifier.device, self._verifier.dtype)
        origins = self._origins([row]).to(texts.device)
        lengths = torch.tensor([texts.shape[1]], device=texts.device)
        found = []
        for step, state in enumerate(self.states(texts, hidden, origins), start=1):
            _, labels = _targets(texts, lengths, origins, step)
            found.append((self._head(state).argmax(dim=-1) == self._known(labels))[0].cpu())
        return torch.stack(found, dim=1)

    def drafter(self) -> FastMTP:
        """A frozen copy of the layer as it stands."""
        layer = copy.deepcopy(self.layer).freeze()
        return FastMTP(layer, self._vocabulary, self._deployed, self._identity)

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write the drafter's folder."""
        self.drafter().save(folder, dtype)

    def _origins(self, rows: Sequence[Row]) -> Tensor:
        starts = [torch.arange(self.labels(row)) + len(row.prompt_ids) - 1 for row in rows]
        return torch.nn.utils.rnn.pad_sequence(starts, batch_first=True, padding_value=-1)

    def states(self, texts: Tensor, hidden: Tensor, origins: Tensor) -> Iterator[Tensor]:
        """``[B, O, H]`` outputs of steps 1..K at ``[B, O]`` origins of ``[B, L]`` texts."""
        if self._settings.attention == "plain":
            yield from self._plain_states(texts, hidden, origins)
            return
        past = CrossSteps()
        state = self._first(texts, hidden, past)
        state = _at(state, origins)
        yield state
        for step in range(2, self._settings.steps + 1):
            ids = texts.gather(1, (origins + step).clamp(max=texts.shape[1] - 1))
            state = self.layer(state, self._verifier.embed(ids), recursed(origins, step), past)
            yield state

    def _first(self, texts: Tensor, hidden: Tensor, past: CrossSteps | NoPast) -> Tensor:
        """Step 1 over all rows of the texts but the last: ``[B, L - 1, H]``."""
        rows = chain(texts[:, 1:], torch.zeros(len(texts), dtype=torch.long, device=texts.device))
        embedded = self._verifier.embed(rows.token_ids)
        return self.layer(hidden[:, :-1], embedded, rows, past)  # type: ignore[no-any-return]

    def _plain_states(self, texts: Tensor, hidden: Tensor, origins: Tensor) -> Iterator[Tensor]:
        """As published: inputs rolled left by one more each step, positions not advanced."""
        past = NoPast()
        state = self._first(texts, hidden, past)
        yield _at(state, origins)
        for step in range(2, self._settings.steps + 1):
            width = state.shape[1] - 1
            ids = texts[:, step : step + width]
            positions = torch.arange(width, device=texts.device).expand(len(texts), -1)
            rows = Rows(ids, positions, causal(width).to(texts.device))
            state = self.layer(state[:, :width], self._verifier.embed(ids), rows, past)
            yield _at(state, origins.clamp(max=width - 1))

    @torch.no_grad()
    def _truth(self, hidden: Tensor) -> Tensor:
        """The verifier's log-probabilities over the draft vocabulary, ``[B, L, V_draft]``."""
        return widened(self._head(hidden)).log_softmax(dim=-1)

    def _known(self, labels: Tensor) -> Tensor:
        """Labels as draft ids; -1 stays, and stands for tokens outside the vocabulary too."""
        if self._vocabulary is None:
            return labels
        return torch.where(labels < 0, -1, self._vocabulary.to_draft(labels.clamp(min=0)))

    def _judge(self, state: Tensor, labels: Tensor, truth: Tensor | None) -> tuple[Tensor, Tensor]:
        """``[N]`` losses of one step at those of its ``[B, O]`` labels that are known, and which
        predictions are right."""
        chosen = labels >= 0
        right = torch.zeros_like(chosen)
        logits = self._head(state[chosen])  # [N, V_draft]
        taught = None if truth is None else truth[chosen]
        losses = token_losses(logits, labels[chosen], taught, self._settings.soft)
        right[chosen] = logits.detach().argmax(dim=-1) == labels[chosen]
        return losses, right


def _at(states: Tensor, index: Tensor) -> Tensor:
    """``[B, L, H]`` states at ``[B, O]`` positions."""
    return states.gather(1, index[:, :, None].expand(-1, -1, states.shape[-1]))


def _targets(texts: Tensor, lengths: Tensor, origins: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Places (clamped) and tokens ``[B, O]`` asked of a step; -1 where there is none."""
    index = origins + step + 1
    inside = (origins >= 0) & (index < lengths[:, None])
    index = index.clamp(0, texts.shape[1] - 1)
    return index, torch.where(inside, texts.gather(1, index), -1)
