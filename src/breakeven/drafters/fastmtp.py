"""``fastmtp``: one small layer, run K times, drafts from the verifier's hidden states.

A round (ALGORITHMS 2.4):

1. *extend*: the layer reads the tokens committed last, each with the verifier's hidden state of
   the token before it, and keeps their keys and values; its last row gives draft 1;
2. *recurse* K - 1 times: the layer reads its own output and the draft it just made;
3. the recursed rows are forgotten: the next extend writes those positions with true states.

Requests of a batch advance by different amounts; each has its own length in the layer's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from breakeven.core import Draft, Phase, Verified
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.card import Card
from breakeven.drafters.draft_head import draft_head
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.drafters.peft_bd import require_lean
from breakeven.drafters.vocabulary import DraftVocabulary
from breakeven.errors import DrafterError, nearest
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import chain
from breakeven.verifier.weights_file import WeightsFile

WEIGHTS_FILE = "model.safetensors"
VOCABULARY_KEY = "vocabulary"
USUAL_VOCABULARY = 8192
"""Tokens that an untrained drafter proposes from, as many as the recipes keep."""


class FastMTP(Drafter):
    """A recursive multi-token-prediction layer over a pruned vocabulary (None: the full one)."""

    name = "fastmtp"
    needs_hidden = True
    sequential = True

    def __init__(
        self,
        layer: MTPLayer,
        vocabulary: DraftVocabulary | None,
        verifier: LeanVerifier,
        identity: Identity | None = None,
        *,
        int8: bool = False,
    ) -> None:
        """``int8`` rounds the weights of a pruned head where the CPU kernels run."""
        self.layer, self.vocabulary, self.verifier = layer, vocabulary, identity
        self._head = pruned_head(verifier, vocabulary, int8=int8)
        self._shape, self._dtype, self._device = verifier.shape, verifier.dtype, verifier.device
        self._pending: list[tuple[list[int], Tensor]] = []  # per slot: tokens, states before them

    def reserve(self, batch: int, capacity: int) -> None:
        """An empty one-layer cache."""
        self._cache = KVCache.allocate(
            layers=1,
            batch=batch,
            kv_heads=self._shape.kv_heads,
            capacity=capacity,
            head_dim=self._shape.head_dim,
            dtype=self._dtype,
            device=self._device,
        )
        self._pending = [([], torch.empty(0)) for _ in range(batch)]

    @torch.inference_mode()
    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """Read the new prompts; the root waits for :meth:`propose`."""
        assert hidden is not None
        window = self._cache.window(start, context.batch)
        window.lengths.zero_()
        prompts = context.tokens[start:]
        inside = [
            (tokens[1:-1], states[: len(tokens) - 2])
            for tokens, states in zip(prompts, hidden, strict=True)
        ]
        if any(tokens for tokens, _ in inside):
            self._read(context, window, inside, Phase.PREFILL)
        for slot, (tokens, states) in enumerate(zip(prompts, hidden, strict=True), start):
            self._pending[slot] = ([tokens[-1]], states[len(tokens) - 2 : len(tokens) - 1])

    @torch.inference_mode()
    def propose(self, context: Context, k: int) -> list[Draft]:
        """``k`` tokens per request, or as many as are enough: one extend over what was committed,
        then recursions.
        """
        window = self._cache.window(0, context.batch)
        pending = self._pending[: context.batch]
        last, tokens, shares = self._read(context, window, pending, Phase.DRAFT)
        lengths = window.lengths.tolist()
        drafts = [[token] for token in tokens.tolist()]
        sure = [[share] for share in shares.tolist()]
        while len(drafts[0]) < k and not context.done(drafts, sure):
            rows = [([own[-1]], state[None]) for own, state in zip(drafts, last, strict=True)]
            last, tokens, shares = self._read(context, window, rows, Phase.DRAFT)
            for own, token, known, share in zip(
                drafts, tokens.tolist(), sure, shares.tolist(), strict=True
            ):
                own.append(token)
                known.append(share)
        for slot, length in enumerate(lengths):
            window.crop(slot, length)
            self._pending[slot] = ([], torch.empty(0))
        return [
            Draft(tuple(own), confidences=tuple(known))
            for own, known in zip(drafts, sure, strict=True)
        ]

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        """Keep the committed tokens and the verifier's states before them for the next round."""
        assert hidden is not None
        for slot, outcome in enumerate(verified):
            tokens, states = self._pending[slot]
            fresh = hidden[slot, : outcome.committed].clone()
            joined = torch.cat((states, fresh)) if tokens else fresh
            self._pending[slot] = ([*tokens, *outcome.tokens], joined)

    def move(self, source: int, target: int) -> None:
        """Cache and pending rows go with the request."""
        self._cache.move(source, target)
        self._pending[target] = self._pending[source]

    def _read(
        self,
        context: Context,
        window: KVCache,
        rows: Sequence[tuple[Sequence[int], Tensor]],
        phase: Phase,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Append (token, state before it) rows per request.

        Returns of the last ones the outputs ``[B, H]``, and ``[B]`` token ids of the verifier
        with the layer's share of each: the head is part of the pass.
        """
        counts = [len(tokens) for tokens, _ in rows]
        width = max(counts)
        ids = torch.tensor([[*tokens, *[0] * (width - len(tokens))] for tokens, _ in rows])
        states = torch.zeros(
            len(rows), width, self._shape.hidden_size, dtype=self._dtype, device=self._device
        )
        for slot, (tokens, state) in enumerate(rows):
            states[slot, : len(tokens)] = state
        layout = chain(ids, window.lengths).to(self._device)
        longest = int(window.lengths.max())
        with context.ledger.buy(
            phase, rows=width, batch=len(rows), context=longest, mode="eager", model=self.name
        ):
            embedded = context.verifier.embed(layout.token_ids)
            out: Tensor = self.layer(states, embedded, layout, window)  # [B, W, H]
            last = out[torch.arange(len(rows)), torch.tensor(counts) - 1]
            best, shares = self._pick(last)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        window.commit(counts)
        return last, best, shares

    def _pick(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, H]`` states to ``[B]`` token ids of the verifier, and the layer's share of each."""
        logits = self._head(states)
        best = logits.argmax(dim=-1)
        # softmax is one kernel on the calling thread; logsumexp wakes the others for 8192 numbers
        shares = logits.softmax(dim=-1).amax(dim=-1)
        return best if self.vocabulary is None else self.vocabulary.to_target(best), shares

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> FastMTP:
        """A random layer over a vocabulary of the usual size; ``k`` changes nothing."""
        lean = require_lean(verifier, cls.name)
        size = min(USUAL_VOCABULARY, lean.shape.vocab_size)
        vocabulary = DraftVocabulary(torch.arange(size).to(lean.device), lean.shape.vocab_size)
        return cls(MTPLayer.of(lean).freeze(int8=True), vocabulary, lean, int8=True)

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write ``model.safetensors`` (the layer as ``dtype``, the kept ids) and the card."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = self.layer.state_dict()
        tensors = {k: v.detach().to(dtype or v.dtype).contiguous() for k, v in weights.items()}
        if self.vocabulary is not None:
            tensors[VOCABULARY_KEY] = self.vocabulary.ids
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        size = None if self.vocabulary is None else len(self.vocabulary)
        Card(self.name, self.verifier, {"vocabulary": size}).write(folder)

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        weights: Literal["int8", "exact"] = "int8",
    ) -> FastMTP:
        """Read what :meth:`save` wrote; :class:`DrafterError` if it does not fit ``verifier``.

        On the CPU kernels the drafter's weights are rounded to int8 unless they are to be
        ``exact``: only drafts depend on them, and few of those.
        """
        if weights not in ("int8", "exact"):
            raise DrafterError(f"weights '{weights}': {nearest(str(weights), ('int8', 'exact'))}")
        lean = require_lean(verifier, cls.name)
        card = Card.read(folder, cls.name, identity)
        pruned = card.setting(folder, "vocabulary") is not None
        file = WeightsFile(folder, WEIGHTS_FILE)
        vocabulary = None
        if pruned:
            ids = file.take(VOCABULARY_KEY, (card.size(folder, "vocabulary"),), torch.long)
            vocabulary = DraftVocabulary(ids.to(lean.device), lean.shape.vocab_size)
        layer = MTPLayer.of(lean)
        with torch.no_grad():
            for key, value in layer.state_dict().items():
                value.copy_(file.take(key, value.shape, value.dtype))
        int8 = weights == "int8"
        return cls(layer.freeze(int8=int8), vocabulary, lean, card.verifier, int8=int8)


def pruned_head(
    verifier: LeanVerifier, vocabulary: DraftVocabulary | None, *, int8: bool = False
) -> Callable[[Tensor], Tensor]:
    """``[..., H]`` states to logits over a draft vocabulary, with the verifier's own weights.

    A full vocabulary has the verifier's own head, which is never rounded here.
    """
    if vocabulary is None:
        return verifier.head
    return draft_head(verifier, verifier.head_weight[vocabulary.ids], int8=int8).forward
