"""``peft-bd-gated``: the verifier drafts for itself, through a LoRA that only mask rows see.

One draft pass over ``[root, mask, mask, …]`` (ALGORITHMS 1.8 V2, 1.9 "free first token"):

- the root row runs with the gate off, so its arg-max is the verifier's own next token ``y0`` and
  its key/value row is the verifier's: the first draft is free and never rejected;
- mask row j, at position ``root + j``, runs with the adapter on, reads the verifier's own cache
  and predicts the token after its position (shifted labels), the draft after ``y0`` by j - 1.

K drafts therefore take a pass of K rows, or of all the rows it was trained with where masks see
each other (see :class:`MaskBlock`). The mask is an input vector of the adapter, not a
token: the head keeps the verifier's V rows and can never emit it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from breakeven.core import Draft, Phase
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.card import Card
from breakeven.errors import DrafterError
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import draft_block


@dataclass(frozen=True, slots=True)
class MaskBlock:
    """The trained block: how many masks, and whether a mask sees only earlier masks.

    Masks that see each other draft better, the later ones serving the earlier as room to compute
    in, but then the whole block must run, whatever K is.
    """

    masks: int = 3
    causal: bool = False


class GatedBlockDrafter(Drafter):
    """PEFT-BD with a row-gated adapter on the verifier's own cache."""

    name = "peft-bd-gated"
    free = 1

    def __init__(
        self, adapter: RowLoRA, block: MaskBlock, verifier: Identity | None = None
    ) -> None:
        self.adapter, self.block, self.verifier = adapter, block, verifier
        self.scratch_rows = block.masks

    @torch.inference_mode()
    def propose(self, context: Context, k: int) -> list[Draft]:
        """The verifier's own next token and up to ``k - 1`` guesses, from one pass.

        No more than the masks it was trained with: ``K <= masks + 1``.
        """
        roots = torch.tensor([tokens[-1] for tokens in context.tokens])
        masks = min(k - 1, self.block.masks) if self.block.causal else self.block.masks
        rows = draft_block(
            roots, context.cache.lengths, masks=masks, causal_block=self.block.causal
        )
        out = context.verifier.run(
            Phase.DRAFT,
            rows,
            context.cache,
            context.ledger,
            adapter=self.adapter,
            logits="choices",
        )
        assert out.choices is not None  # [B, K]
        return [Draft(tuple(tokens[:k]), free=1) for tokens in out.choices.tolist()]

    def save(self, folder: Path) -> None:
        """Write a PEFT adapter directory, the mask vector and the card."""
        base = self.verifier.name if self.verifier else "unknown"
        self.adapter.save(folder, base)
        settings = {"masks": self.block.masks, "causal": self.block.causal}
        Card(self.name, self.verifier, settings).write(folder)

    @classmethod
    def load(
        cls, folder: Path, verifier: Verifier, identity: Identity | None = None
    ) -> GatedBlockDrafter:
        """Read what :meth:`save` wrote; :class:`DrafterError` if it does not fit ``verifier``."""
        lean = require_lean(verifier, cls.name)
        card = Card.read(folder, cls.name, identity)
        block = MaskBlock(card.size(folder, "masks"), bool(card.setting(folder, "causal")))
        adapter = RowLoRA.load(folder, lean.architecture).to(lean.device, lean.dtype)
        return cls(adapter.requires_grad_(False), block, card.verifier)


def require_lean(verifier: Verifier, drafter: str) -> LeanVerifier:
    """The verifier as a lean decoder, or a :class:`DrafterError`: others cannot be adapted."""
    if isinstance(verifier, LeanVerifier):
        return verifier
    raise DrafterError(
        f"'{drafter}' needs the lean decoder (Llama, Mistral, Qwen2, Qwen3), and '{verifier.name}' "
        "runs through transformers; use the ngram drafter with it"
    )
