"""``peft-bd-fused``: the next draft rides in the verify pass, so a round is one pass.

The adapter is that of ``peft-bd-gated``. Its mask rows leave the rows of the chain untouched, so
one pass can verify the drafts of this round and make those of the next: behind the chain stands a
group of masks for each number of drafts that may be accepted (ALGORITHMS 1.11). When the outcome
is known, one group is right and the others are dropped. With shifted labels its first mask names
the token behind the bonus, which it does not know, exactly as in training, so nothing is lost
against a pass of its own.

A round costs one pass of ``K + 1 + groups * masks`` rows: what pays on a device where rows are
nearly free is dear where they are not. So how many outcomes are provided for, and with how many
masks, follows from the measured price of rows here and from how often the drafts were right
(:mod:`breakeven.cost.layout`), unless it is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from breakeven.core import Draft, Verified
from breakeven.cost.layout import Layout, fastest, layouts
from breakeven.cost.profile import PROFILE_FILE, read_rates
from breakeven.drafters.base import Aboard, Boarding, Context, Drafter, Sketch
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.bonus import BONUS_FILE, BonusHead, load_head
from breakeven.drafters.peft_bd import GatedPeftBD, require_lean
from breakeven.errors import DrafterError
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import BlockShape, Rows, with_groups
from breakeven.verifier.timing import quick_curve

FUSED_PROFILE = "fused_profile.json"
"""The acceptance of fused drafts with the bonus module; without one it is the adapter's own."""


class Fused(Drafter):
    """Drafts with a gated adapter inside the verify pass."""

    name = "peft-bd-fused"
    aboard = "rows"

    def __init__(
        self,
        adapter: RowLoRA,
        plan: BlockPlan,
        verifier: Identity | None = None,
        *,
        groups: int | None = None,
        masks: int | None = None,
        drafts: int | None = None,
        bonus: BonusHead | None = None,
    ) -> None:
        """``groups``: outcomes provided for, fewest accepted first (default: all). ``masks``: of
        the block's, how many ride in each group (default: all; 0: none, which is plain decoding).
        ``drafts``: the most that are verified in a round (default: as many as there are masks).
        ``bonus`` corrects the chosen group.
        """
        if plan.labels != "shift" or not plan.gated or plan.shape.rooted:
            raise DrafterError(
                f"{self.name} needs shifted labels, a gated adapter and the root before the block"
            )
        _check(self.name, groups, masks, drafts, plan)
        masks = plan.masks if masks is None else masks
        self.adapter, self.plan, self.verifier = adapter, plan, verifier
        self.bonus = bonus
        self.shape = BlockShape(masks, causal=plan.causal)
        self._most = self.longest = masks if drafts is None else min(masks, drafts)
        self.groups = min(groups or self._most + 1, self._most + 1)  # as many as there are outcomes
        self.scratch_rows = self.groups * masks
        self._ids = torch.zeros(0, masks, dtype=torch.long)  # [B, masks], where ids are made
        self._counts: list[int] = []  # how many of a slot's are drafts: all or none
        self._groups = 0  # in the pass of this round

    @property
    def layout(self) -> Mapping[str, int]:
        """``groups``, ``masks`` and ``drafts`` as they are; where there are no masks, only that."""
        if not self.shape.masks:
            return {"masks": 0}
        return {"groups": self.groups, "masks": self.shape.masks, "drafts": self._most}

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
        if not self.shape.masks:
            return Boarding(rows)
        self._groups = min(rows.width, self.groups)
        layout = with_groups(rows, self.shape, self._groups)
        last = context.verifier.shape.max_positions - 1
        layout = replace(layout, positions=layout.positions.clamp(max=last))
        return Boarding(layout, self.adapter)

    @torch.inference_mode()
    def land(self, aboard: Aboard, accepted: Tensor, tokens: Tensor) -> None:
        """Keep the group of each outcome, corrected by the bonus if there is a module for it."""
        masks = self.shape.masks
        which = accepted.clamp(max=self._groups - 1)
        rows = which[:, None] * masks + torch.arange(masks, device=which.device)  # [B, masks]
        if self.bonus is None:
            self._ids = aboard.choices.gather(1, rows)
            return
        states = aboard.hidden.gather(1, rows[:, :, None].expand(-1, -1, aboard.hidden.shape[2]))
        self._ids = self.bonus.choose(states, tokens)

    def observe(
        self, context: Context, verified: Sequence[Verified], hidden: Tensor | None
    ) -> None:
        """An outcome without a group, or a plain step, leaves nothing to verify."""
        for slot, outcome in enumerate(verified):
            self._counts[slot] = self._most if outcome.accepted < self._groups else 0
        self._groups = 0

    @torch.inference_mode()
    def move(self, source: int, target: int) -> None:
        """The drafts go with the request."""
        self._ids[target] = self._ids[source]
        self._counts[target] = self._counts[source]

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> Self:
        """``k`` masks for every outcome of a round: its price at the most."""
        adapter = GatedPeftBD.untrained(verifier, k).adapter
        return cls(adapter, BlockPlan(k))

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        groups: int | Literal["auto"] = "auto",
        masks: int | None = None,
        drafts: int | None = None,
        bonus: bool | None = None,
    ) -> Self:
        """The adapter of a ``peft-bd-gated`` folder.

        ``groups: auto`` takes the fastest layout for the acceptance in the folder's profile and
        the prices of passes, which are measured now, in a few dozen of them; in a folder without a
        profile every outcome has a group. ``masks`` and ``drafts`` are chosen with it unless they
        are given; :attr:`layout` says what was taken.
        ``bonus``: correct drafts by the bonus with the folder's module (default: if it has one).
        """
        gated = GatedPeftBD.load(folder, verifier, identity)
        adapter, plan = gated.adapter, gated.plan
        chosen: dict[str, Any] = {
            "groups": None if groups == "auto" else groups,
            "masks": masks,
            "drafts": drafts,
        }
        _check(cls.name, **chosen, plan=plan)
        if bonus is None:
            bonus = (folder / BONUS_FILE).is_file()
        if bonus not in (True, False):
            raise DrafterError(f"{cls.name}: bonus {bonus}: give true or false")
        profile = profile_of(folder, bonus)
        if groups == "auto" and masks != 0 and profile is not None:
            rates = read_rates(profile)[: plan.masks]
            layout = measured_layout(rates, verifier, adapter, plan, masks=masks, drafts=drafts)
            chosen = {"groups": layout.groups or None, "masks": layout.masks}
            chosen["drafts"] = layout.drafts or None
        if bonus:
            chosen["bonus"] = load_head(folder, require_lean(verifier, cls.name), plan)
        return cls(adapter, plan, gated.verifier, **chosen)


def profile_of(folder: Path, bonus: bool) -> Path | None:
    """The measured acceptance in ``folder``: with the bonus module, or of separate drafts."""
    names = (FUSED_PROFILE, PROFILE_FILE) if bonus else (PROFILE_FILE,)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def measured_layout(
    rates: Sequence[float],
    verifier: Verifier,
    adapter: RowLoRA,
    plan: BlockPlan,
    *,
    masks: int | None = None,
    drafts: int | None = None,
) -> Layout:
    """The fastest layout for these acceptance rates, with passes timed on ``verifier`` now.

    ``masks`` and ``drafts``, where they are given, stand; plain decoding is always a choice.
    """
    known = min(plan.masks, len(rates))
    if drafts is not None and drafts > known:
        raise DrafterError(
            f"drafts {drafts}: the profile says how often {known} are right; give groups as well"
        )
    most = known if masks is None else masks
    longest = min(known, most) if drafts is None else drafts
    curve = quick_curve(verifier, longest + 1 + (longest + 1) * most, adapter)
    return fastest(_with(drafts, layouts(rates, curve, masks=masks)))


def _with(drafts: int | None, choices: Iterator[Layout]) -> Iterator[Layout]:
    return (x for x in choices if drafts is None or x.drafts in (0, drafts))


def _check(
    drafter: str, groups: int | None, masks: int | None, drafts: int | None, plan: BlockPlan
) -> None:
    if groups is not None and (type(groups) is not int or groups < 1):
        raise DrafterError(f"{drafter}: groups {groups}: give 1 or more, or auto")
    if masks is not None and (type(masks) is not int or not 0 <= masks <= plan.masks):
        raise DrafterError(
            f"{drafter}: masks {masks}: give 1 to {plan.masks}, as the adapter was trained with, "
            "or 0 for plain decoding"
        )
    most = masks or plan.masks
    if drafts is not None and (type(drafts) is not int or not 1 <= drafts <= most):
        raise DrafterError(
            f"{drafter}: drafts {drafts}: give 1 to {most}, no more than a group has masks"
        )
