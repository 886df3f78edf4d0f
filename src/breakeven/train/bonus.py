"""Training of the bonus module of ``peft-bd-fused``: the adapter stands, the module learns.

Blocks, labels and losses are those of :mod:`~breakeven.train.peft_bd`; what differs is that the
pass through the adapter needs no gradient, and that the states it gives are corrected by the true
token behind the root before the head reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from breakeven.drafters.bonus import (
    BonusCorrection,
    BonusHead,
    CorrectedPeftBD,
    check_plan,
)
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.shipped import shipped_folder
from breakeven.errors import TrainingError
from breakeven.train.blocks import Blocks
from breakeven.train.clean import Clean, CleanStream
from breakeven.train.peft_bd import BlockObjective
from breakeven.train.recipe import BonusSettings
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.lora import RowLoRA


class BonusObjective(BlockObjective):
    """Loss of a bonus module behind a trained ``peft-bd-gated`` adapter."""

    name = "peft-bd-fused"

    def __init__(
        self,
        verifier: LeanVerifier,
        settings: BonusSettings,
        clean: CleanStream,
        identity: Identity | None = None,
        deployed: LeanVerifier | None = None,
    ) -> None:
        """``deployed`` is what the drafter will decode with; the adapter must fit it."""
        self._deployed = deployed or verifier
        gated = GatedPeftBD.load(adapter_folder(settings, identity), self._deployed, identity)
        check_plan(gated.plan)
        super().__init__(verifier, settings, clean, gated.plan, identity)
        self._frozen = (gated.adapter,)  # a tuple: none of the trained weights
        master = torch.promote_types(verifier.dtype, torch.float32)
        module = BonusCorrection(verifier.shape.hidden_size, settings.rank)
        self.bonus = module.to(verifier.device, master)

    @property
    def lora(self) -> RowLoRA:
        """The trained adapter, which stays as it is."""
        return self._frozen[0]

    def states(self, texts: Tensor, blocks: Blocks, streams: Sequence[Clean]) -> Tensor:
        """The masks' states, corrected by the token behind each root."""
        with torch.no_grad():
            states = super().states(texts, blocks, streams)
            behind = (blocks.anchors + 1).clamp(max=texts.shape[1] - 1)
            embedded = self._verifier.embed(texts.gather(1, behind).to(states.device))
        corrected: Tensor = self.bonus(states, embedded)
        return corrected

    def drafter(self) -> CorrectedPeftBD:
        """Adapter and module in a draft pass of their own, which drafts what a fused one does."""
        head = BonusHead(self.bonus, self._deployed)
        return CorrectedPeftBD(self.lora, self.plan, self._identity, head)

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write a ``peft-bd-gated`` folder with the module in it."""
        self.drafter().save(folder, dtype)


def adapter_folder(settings: BonusSettings, identity: Identity | None) -> Path:
    """The folder of the adapter to begin with: that of the recipe, or the shipped one."""
    if settings.adapter is not None:
        return Path(settings.adapter)
    folder = shipped_folder("peft-bd-gated", identity) if identity else None
    if folder is None:
        name = identity.name if identity else "this verifier"
        raise TrainingError(
            f"no peft-bd-gated ships for '{name}'; train one and give its folder: method.adapter="
        )
    return folder
