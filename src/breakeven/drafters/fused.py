"""``peft-bd-fused``: the next draft rides in the verify pass, so a round is one pass.

The adapter is that of ``peft-bd-gated``. Its mask rows leave the rows of the chain untouched, so
one pass can verify the drafts of this round and make those of the next: behind the chain stands a
group of masks for each number of drafts that may be accepted (ALGORITHMS 1.11). When the outcome
is known, one group is right and the others are dropped. With shifted labels its first mask names
the token behind the bonus, which it does not know, exactly as in training, so nothing is lost
against a pass of its own.

A round costs one pass of ``K + 1 + groups * masks`` rows: what pays on a device where rows are
nearly free is dear where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from breakeven.core import Draft, Verified
from breakeven.drafters.base import Boarding, Context, Drafter, Sketch
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.errors import DrafterError
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows, with_groups


class Fused(Drafter):
    """Drafts with a gated adapter inside the verify pass."""

    name = "peft-bd-fused"

    def __init__(
        self,
        adapter: RowLoRA,
        plan: BlockPlan,
        verifier: Identity | None = None,
        *,
        groups: int | None = None,
    ) -> None:
        """``groups``: outcomes provided for, fewest accepted first (default: all)."""
        if plan.labels != "shift" or not plan.gated or plan.shape.rooted:
            raise DrafterError(
                f"{self.name} needs shifted labels, a gated adapter and the root before the block"
            )
        if groups is not None and groups < 1:
            raise DrafterError(f"{self.name}: groups {groups}: give 1 or more")
        self.adapter, self.plan, self.verifier, self.groups = adapter, plan, verifier, groups
        self.longest = plan.masks
        self.scratch_rows = (groups or plan.masks + 1) * plan.masks
        self._ids = torch.zeros(0, plan.masks, dtype=torch.long)  # [B, masks], where ids are made
        self._counts: list[int] = []  # how many of a slot's are drafts: all or none
        self._groups = 0  # in the pass of this round

    def reserve(self, batch: int, capacity: int) -> None:
        """Nothing is drafted yet for any request."""
        self._counts = [0] * batch

    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """The first pass of a request verifies nothing and drafts."""
        for slot in range(start, context.batch):
            self._counts[slot] = 0
        self._ids = F.pad(self._ids, (0, 0, 0, max(0, context.batch - len(self._ids))))

    def propose(self, context: Context, k: int) -> list[Draft]:
        """What the last pass drafted."""
        if not any(self._counts):
            return [Draft(())] * context.batch
        found = zip(self._ids[: context.batch].tolist(), self._counts, strict=False)
        return [Draft(tuple(tokens[: min(k, count)])) for tokens, count in found]

    @torch.inference_mode()
    def sketch(self, context: Context, k: int) -> Sketch | None:
        """The same without a look at the ids."""
        counts = [min(k, count) for count in self._counts[: context.batch]]
        return Sketch(self._ids[: context.batch, :k], counts) if any(counts) else None

    def board(self, context: Context, rows: Rows) -> Boarding:
        """One group of masks for each outcome of the chain ``rows``, as far as groups go."""
        self._groups = min(rows.width, self.groups or self.plan.masks + 1)
        layout = with_groups(rows, self.plan.shape, self._groups)
        last = context.verifier.shape.max_positions - 1
        layout = replace(layout, positions=layout.positions.clamp(max=last))
        return Boarding(layout, self.adapter)

    @torch.inference_mode()
    def land(self, choices: Tensor, accepted: Tensor) -> None:
        """Keep the group of each outcome."""
        groups = choices.view(len(accepted), self._groups, self.plan.masks)
        index = accepted.clamp(max=self._groups - 1)[:, None, None]
        self._ids = groups.gather(1, index.expand(-1, 1, self.plan.masks))[:, 0].clone()

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        """An outcome without a group, or a plain step, leaves nothing to verify."""
        for slot, outcome in enumerate(verified):
            self._counts[slot] = self.plan.masks if outcome.accepted < self._groups else 0
        self._groups = 0

    @torch.inference_mode()
    def move(self, source: int, target: int) -> None:
        """The drafts go with the request."""
        self._ids[target] = self._ids[source]
        self._counts[target] = self._counts[source]

    @classmethod
    def load(
        cls, folder: Path, verifier: Verifier, identity: Identity | None = None, **options: Any
    ) -> Self:
        """The adapter of a ``peft-bd-gated`` folder."""
        gated = GatedPeftBD.load(folder, verifier, identity)
        unknown = set(options) - {"groups"}
        if unknown:
            raise DrafterError(f"{cls.name}: option '{min(unknown)}' is unknown; give groups")
        return cls(gated.adapter, gated.plan, gated.verifier, **options)
