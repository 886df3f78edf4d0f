"""Drafts from the verifier's own weights, rounded to int8.

Plain decoding is bound by reading weights, so a pass over a quarter of the bytes costs a fraction
of a step, and rounded weights nearly always choose the same token (self-speculation with
quantized weights: arXiv 2410.11305, 2503.13565). ``quantized`` drafts so token by token and needs
no training. ``peft-bd-quantized`` drafts a block in one pass with the adapter of a
``peft-bd-gated``, which learned over the weights as they are; its root row is not the verifier's
own, so no draft is free.

The price is memory, a quarter of the weights again. Where no kernel multiplies int8 (off the fp32
CPU path) the drafts are the same and cost as much as with the weights as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from weakref import WeakKeyDictionary, ref

from breakeven.core import Phase
from breakeven.drafters.base import Context
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.peft_bd import GatedPeftBD, require_lean
from breakeven.drafters.stepwise import Stepwise
from breakeven.errors import DrafterError
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.int8 import SUFFIX
from breakeven.verifier.interface import Output, Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows

_TWINS: WeakKeyDictionary[LeanVerifier, ref[LeanVerifier]] = WeakKeyDictionary()
"""The rounded copy of a verifier, as long as a drafter has it: all its drafters share one."""


class Quantized(Stepwise):
    """Drafts with ``twin``, the verifier's rounded copy."""

    name = "quantized"
    sharpness = 12.0  # the twin's logits are near the verifier's, so a small lead says much

    def __init__(self, twin: LeanVerifier) -> None:
        self.twin = twin

    @classmethod
    def of(cls, verifier: Verifier) -> Self:
        """Round the weights of ``verifier``; a :class:`DrafterError` where that brings nothing."""
        return cls(_twin(verifier, cls.name))

    def step(self, context: Context, rows: Rows) -> Output:
        """One pass of the twin."""
        return self.twin.run(Phase.DRAFT, rows, context.cache, context.ledger, logits="margins")


class QuantizedPeftBD(GatedPeftBD):
    """A gated block drafter whose draft pass runs through ``twin``."""

    name = "peft-bd-quantized"

    def __init__(
        self,
        adapter: RowLoRA,
        plan: BlockPlan,
        verifier: Identity | None = None,
        *,
        twin: LeanVerifier,
        steps: int = 1,
        refill: Literal["masked", "all"] = "masked",
    ) -> None:
        super().__init__(adapter, plan, verifier, steps=steps, refill=refill)
        self.twin, self.free = twin, 0

    def _backbone(self, context: Context) -> Verifier:
        return self.twin

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> Self:
        """As :meth:`GatedPeftBD.untrained`."""
        gated = GatedPeftBD.untrained(verifier, k)
        return cls(gated.adapter, gated.plan, twin=_twin(verifier, cls.name))

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        **options: object,
    ) -> Self:
        """The adapter of a ``peft-bd-gated`` folder."""
        gated = GatedPeftBD.load(folder, verifier, identity, **options)
        twin = _twin(verifier, cls.name)
        return cls(
            gated.adapter,
            gated.plan,
            gated.verifier,
            twin=twin,
            steps=gated.steps,
            refill=gated.refill,
        )


def _twin(verifier: Verifier, drafter: str) -> LeanVerifier:
    lean = require_lean(verifier, drafter)
    if lean.name.endswith(SUFFIX):
        raise DrafterError(
            f"'{drafter}': the weights of '{lean.name}' are int8 already, so a rounded copy costs "
            "as much as the verifier; draft with ngram, suffix or a trained drafter"
        )
    known = _TWINS.get(lean)
    twin = known() if known else None
    if twin is None:
        twin = lean.rounded()
        _TWINS[lean] = ref(twin)
    return twin
