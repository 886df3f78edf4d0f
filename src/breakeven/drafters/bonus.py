"""Bonus calibration: drafts corrected by the token in front of them, once it is known.

The masks of a gated block are read before the token in front of their first draft is known: the
bonus of a fused pass, the free token of a separate one. After the pass it is. A small module then
corrects each mask's final state before the head reads it (FlexDraft, arXiv 2605.20022, corrects
logits; ALGORITHMS 1.11):

    h' = h + up(silu(down([norm(h); norm(embedding(bonus))])))

``up`` starts at zero, so untrained it changes nothing. The head is read a second time, for the
corrected states alone. Where the CPU kernels run it is rounded to int8 for that: only drafts depend
on it, and few of those.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from breakeven.drafters.base import Context
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.denoise import Canvas
from breakeven.drafters.draft_head import draft_head
from breakeven.drafters.peft_bd import GatedPeftBD, require_lean
from breakeven.errors import DrafterError
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Output, Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.native.body import obstacle
from breakeven.verifier.transfer import sent
from breakeven.verifier.weights_file import WeightsFile

BONUS_FILE = "bonus.safetensors"


class BonusCorrection(nn.Module):
    """The trained part: ``rank`` directions in which a state is moved.

    Its start is drawn for ``down`` and zero for ``up``.
    """

    def __init__(self, hidden_size: int, rank: int = 64) -> None:
        super().__init__()
        self.rank = rank
        self.down = nn.Linear(2 * hidden_size, rank, bias=False)
        self.up = nn.Linear(rank, hidden_size, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, states: Tensor, embedded: Tensor) -> Tensor:
        """``[..., M, H]`` states of the masks behind one root, and ``[..., H]`` of its bonus."""
        size = states.shape[-1]
        beside = embedded[..., None, :].expand_as(states)
        pair = [F.rms_norm(x, (size,)) for x in (states, beside)]
        moved: Tensor = self.up(F.silu(self.down(torch.cat(pair, dim=-1))))
        return states + moved.to(states.dtype)

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write ``bonus.safetensors``, its weights as ``dtype``."""
        weights = self.state_dict()
        tensors = {k: w.detach().to(dtype or w.dtype).contiguous() for k, w in weights.items()}
        save_file(tensors, folder / BONUS_FILE, metadata={"format": "pt"})

    @classmethod
    def load(cls, folder: Path, hidden_size: int, dtype: torch.dtype = torch.float32) -> Self:
        """Read what :meth:`save` wrote; :class:`DrafterError` if it does not fit the verifier."""
        if not (folder / BONUS_FILE).is_file():
            raise DrafterError(
                f"{folder}: no {BONUS_FILE}; train it (recipes/smollm2-135m/bonus.yaml), or leave "
                "out bonus: true"
            )
        file = WeightsFile(folder, BONUS_FILE)
        rank = max([1, *file.get("down.weight").shape[:1]])
        sizes = {"down.weight": (rank, 2 * hidden_size), "up.weight": (hidden_size, rank)}
        weights = {key: file.take(key, size, dtype) for key, size in sizes.items()}
        module = cls(hidden_size, rank).to(dtype)
        module.load_state_dict(weights)
        return module


class BonusHead:
    """A correction and the head behind it, for decoding with ``verifier``."""

    def __init__(self, correction: BonusCorrection, verifier: LeanVerifier) -> None:
        self.correction, self._verifier = correction, verifier
        weight = verifier.head_weight
        native = obstacle(verifier.architecture, weight.dtype, weight.device) is None
        self._cheap = draft_head(verifier, weight) if native else None

    def choose(self, states: Tensor, bonus: Tensor) -> Tensor:
        """Ids ``[B, M]`` named by the masks' ``[B, M, H]`` states, the bonus being ``[B]`` ids."""
        moved = self._moved(states, bonus)
        if self._cheap is None:
            return self._verifier.choose(moved)
        assert self._cheap.panels is not None
        return self._cheap.panels.choose(moved, None)

    def logits(self, states: Tensor, bonus: Tensor) -> Tensor:
        """``[B, M, V]`` logits of the same, with the head as it is."""
        return self._verifier.head(self._moved(states, bonus))

    def _moved(self, states: Tensor, bonus: Tensor) -> Tensor:
        moved: Tensor = self.correction(states, self._verifier.embed(bonus))
        return moved


class CorrectedPeftBD(GatedPeftBD):
    """``peft-bd-gated`` with its guesses corrected by the free token.

    Its guesses are those of a fused pass with the same module, so training validates with it.
    """

    def __init__(
        self, adapter: RowLoRA, plan: BlockPlan, verifier: Identity | None, head: BonusHead
    ) -> None:
        check_plan(plan)
        super().__init__(adapter, plan, verifier)
        self.head = head

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write a ``peft-bd-gated`` folder with the module in it."""
        super().save(folder, dtype)
        self.head.correction.save(folder, dtype)

    @classmethod
    def load(
        cls, folder: Path, verifier: Verifier, identity: Identity | None = None, **options: object
    ) -> Self:
        """Read what :meth:`save` wrote."""
        gated = GatedPeftBD.load(folder, verifier, identity, **options)
        head = load_head(folder, require_lean(verifier, cls.name), gated.plan)
        return cls(gated.adapter, gated.plan, gated.verifier, head)

    def _read(
        self,
        context: Context,
        stream: list[list[int]],
        cache: KVCache,
        canvas: Canvas,
        logits: Literal["choices", "all"],
        wait: bool = True,
    ) -> tuple[Output, Tensor]:
        """The pass, and then what its masks name, given what its root names."""
        out, index = super()._read(context, stream, cache, canvas, logits, wait)
        places = sent(index, out.hidden.device)
        roots, masks = places[:, :1], places[:, 1:]
        named = out.choices if out.logits is None else out.logits.argmax(dim=-1)
        assert named is not None
        bonus = named.gather(1, roots)[:, 0]
        states = out.hidden.gather(1, masks[:, :, None].expand(-1, -1, out.hidden.shape[2]))
        if out.logits is None:
            corrected = named.scatter(1, masks, self.head.choose(states, bonus))
            return replace(out, choices=corrected), index
        spread = masks[:, :, None].expand(-1, -1, out.logits.shape[2])
        corrected = out.logits.scatter(1, spread, self.head.logits(states, bonus))
        return replace(out, logits=corrected), index


def load_head(folder: Path, verifier: LeanVerifier, plan: BlockPlan) -> BonusHead:
    """The module in ``folder``, ready to decode; :class:`DrafterError` without one that fits."""
    check_plan(plan)
    module = BonusCorrection.load(folder, verifier.shape.hidden_size, verifier.dtype)
    return BonusHead(module.to(verifier.device).requires_grad_(False), verifier)


def check_plan(plan: BlockPlan) -> None:
    """:class:`DrafterError` unless a block of ``plan`` follows a token of the verifier's own."""
    if not plan.free or plan.labels != "shift":
        raise DrafterError(
            "a bonus module needs an adapter with shifted labels and its first token free "
            "(anchoring: first_from_verifier)"
        )
