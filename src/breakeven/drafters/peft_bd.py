"""PEFT-BD: the verifier drafts for itself, many tokens in one pass, through a LoRA adapter.

A draft pass feeds the root and a block of mask rows; each mask names one token (ALGORITHMS 1.8).
Two drafters share the code and differ in what the adapter touches:

- ``peft-bd``, the paper's: the adapter acts in every row, so the prefix needs keys and values of
  its own (:mod:`~breakeven.drafters.own_cache`): twice the cache, a second prefill. Reading the
  verifier's cache instead (``cache="shared"``) is never right for this adapter; it is kept to
  measure what such a mistake costs.
- ``peft-bd-gated``: the adapter acts in the block only and reads the verifier's cache. The root
  row is the verifier's own, so the first draft can be free.

``steps`` > 1 denoises again with the most confident tokens filled in (ALGORITHMS 1.10): right,
``refill="masked"``, filled tokens stay; wrong, ``refill="all"``, every position is filled and
then read anew, from rows that were never trained.

The mask is an input vector of the adapter, not a token: the head cannot emit it.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self, get_args

import torch
from torch import Tensor

from breakeven.core import Draft, Phase
from breakeven.drafters.base import Context, Sketch
from breakeven.drafters.block_plan import MOST_MASKS, Anchoring, BlockPlan, Labels
from breakeven.drafters.card import Card
from breakeven.drafters.denoise import Canvas
from breakeven.drafters.marginals import Candidates, MarginalDrafter
from breakeven.drafters.own_cache import OwnCache
from breakeven.errors import DrafterError, nearest
from breakeven.verifier.cache import KVCache
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Output, Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import BlockShape, draft_block


class BlockDrafter(MarginalDrafter):
    """Drafts one block per round with an adapter on the verifier's backbone."""

    gated: ClassVar[bool]

    def __init__(
        self,
        adapter: RowLoRA,
        plan: BlockPlan,
        verifier: Identity | None = None,
        *,
        cache: Literal["own", "shared"] | None = None,
        steps: int = 1,
        refill: Literal["masked", "all"] = "masked",
    ) -> None:
        """``cache`` defaults to what the adapter was trained for."""
        assert plan.gated == self.gated, f"{self.name} needs a plan with gated={self.gated}"
        _check(cache, steps, refill, plan)
        _check_place(adapter, plan)
        self.adapter, self.plan, self.verifier = adapter, plan, verifier
        self.steps, self.refill = steps, refill
        self.free, self.longest = plan.free, plan.most
        self.scratch_rows = plan.shape.width
        own = cache == "own" if cache else not plan.gated
        self._own = OwnCache(adapter) if own else None

    def reserve(self, batch: int, capacity: int) -> None:
        """Room for the adapter's own cache, if it has one."""
        if self._own is not None:
            self._own.reserve(batch, capacity + 2 * (self.plan.most + 1))

    @torch.inference_mode()
    def begin(self, context: Context, start: int, hidden: Tensor | None) -> None:
        """Read the new prompts through the adapter."""
        if self._own is not None:
            self._own.begin(context, start)

    @torch.inference_mode()
    def move(self, source: int, target: int) -> None:
        """The own cache's rows go with the request."""
        if self._own is not None:
            self._own.move(source, target)

    @torch.inference_mode()
    def propose(self, context: Context, k: int) -> list[Draft]:
        """At most ``plan.most`` tokens per request, from ``steps`` passes."""
        canvas, out, index = self._denoise(context, k, "choices")
        assert out.choices is not None
        drafts = canvas.drafts(out.choices.cpu().gather(1, index))[:, :k]
        return [Draft(tuple(tokens), free=self.free) for tokens in drafts.tolist()]

    @torch.inference_mode()
    def sketch(self, context: Context, k: int) -> Sketch | None:
        """The same without a look at the ids; not for an own cache or several steps."""
        if self._own is not None or self.steps > 1:
            return None
        _, out, index = self._denoise(context, k, "choices", wait=False)
        assert out.choices is not None
        columns = index[0].tolist()[:k]  # the same for all: the root alone is read in front
        ids = torch.stack([out.choices[:, column] for column in columns], dim=1)
        return Sketch(ids, [len(columns)] * context.batch, self.free)

    @torch.inference_mode()
    def candidates(self, context: Context, k: int, top: int) -> list[list[Candidates]]:
        """The ``top`` likeliest tokens of each position; of a decided one, that token alone."""
        canvas, out, index = self._denoise(context, k, "all")
        assert out.logits is not None
        top = min(top, out.logits.shape[-1])
        shares, named = out.logits.softmax(dim=-1, dtype=torch.float32).topk(top, dim=-1)
        spread = index[:, :, None].expand(-1, -1, top)
        shares, named = shares.cpu().gather(1, spread), named.cpu().gather(1, spread)
        drafts = canvas.drafts(named[:, :, 0])[:, :k]
        decided = drafts != named[:, : drafts.shape[1], 0]
        decided[:, : self.free] = True
        found: list[list[Candidates]] = []
        for b, draft in enumerate(drafts.tolist()):
            found.append(
                [
                    [(token, 1.0)]
                    if decided[b, j]
                    else list(zip(named[b, j].tolist(), shares[b, j].tolist(), strict=True))
                    for j, token in enumerate(draft)
                ]
            )
        return found

    def _denoise(
        self, context: Context, k: int, logits: Literal["choices", "all"], wait: bool = True
    ) -> tuple[Canvas, Output, Tensor]:
        """All passes of one draft: the block, the last pass, and its rows' index ``[B, most]``.

        ``logits`` says what the last pass is to tell of its rows; ``wait`` is that of
        :meth:`Verifier.run`. The index is on the host.
        """
        k = min(k, self.plan.most)
        shape = BlockShape(self.plan.masks_for(k), self.plan.shape.rooted, self.plan.causal)
        stream, cache = self._prefix(context)
        roots = torch.tensor([tokens[-1] for tokens in context.tokens])
        canvas = Canvas(self.plan, shape, roots, steps=self.steps, refill=self.refill)
        while not canvas.finished:
            out, index = self._read(context, stream, cache, canvas, "all")
            assert out.logits is not None
            sure, named = out.logits.softmax(dim=-1, dtype=torch.float32).max(dim=-1)
            canvas.fill(named.cpu().gather(1, index), sure.cpu().gather(1, index))
        out, index = self._read(context, stream, cache, canvas, logits, wait)
        if self._own is not None:
            self._own.keep([len(tokens) for tokens in stream])
        return canvas, out, index

    def _prefix(self, context: Context) -> tuple[list[list[int]], KVCache]:
        """What has to be read before the block, and the cache that it follows."""
        if self._own is not None:
            return self._own.missing(context, rooted=self.plan.shape.rooted)
        rooted = self.plan.shape.rooted
        return [[] if rooted else tokens[-1:] for tokens in context.tokens], context.cache

    def _read(
        self,
        context: Context,
        stream: list[list[int]],
        cache: KVCache,
        canvas: Canvas,
        logits: Literal["choices", "all"],
        wait: bool = True,
    ) -> tuple[Output, Tensor]:
        """One pass, and ``[B, most]``: which of its rows name the tokens at offsets 1.."""
        counts = torch.tensor([len(tokens) for tokens in stream])
        size = int(counts.max())
        padded = torch.tensor([[*t, *[0] * (size - len(t))] for t in stream], dtype=torch.long)
        rows = draft_block(
            padded.view(len(stream), size),
            cache.lengths,
            canvas.shape,
            counts=counts,
            block_ids=canvas.ids,
            masked=canvas.masked,
            gated=self.plan.gated,
        )
        out = self._backbone(context).run(
            Phase.DRAFT,
            rows,
            cache,
            context.ledger,
            adapter=self.adapter,
            logits=logits,
            wait=wait,
        )
        return out, canvas.sources(counts, size)

    def _backbone(self, context: Context) -> Verifier:
        """Whose layers the draft pass runs through."""
        return context.verifier

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> Self:
        """Rank 16 on every layer and just the masks that ``k`` drafts need."""
        lean = require_lean(verifier, cls.name)
        adapter = RowLoRA(lean.architecture).to(lean.device, lean.dtype).requires_grad_(False)
        plan = BlockPlan(max(1, k - 1))
        if not cls.gated:
            plan = BlockPlan(k, labels="same", anchoring="none", gated=False)
        return cls(adapter, plan)

    def save(self, folder: Path, dtype: torch.dtype | None = None) -> None:
        """Write a PEFT adapter directory, the mask vector and the card; weights as ``dtype``."""
        base = self.verifier.name if self.verifier else "unknown"
        self.adapter.save(folder, base, dtype)
        settings = {
            "masks": self.plan.masks,
            "causal": self.plan.causal,
            "labels": self.plan.labels,
            "anchoring": self.plan.anchoring,
            "last": self.plan.last,
        }
        Card(self.name, self.verifier, settings).write(folder)

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        **options: object,
    ) -> Self:
        """Read what :meth:`save` wrote; ``options`` are those of the class.

        :class:`DrafterError` if it does not fit ``verifier`` or an option is unknown.
        """
        lean = require_lean(verifier, cls.name)
        card = Card.read(folder, cls.name, identity)
        plan = BlockPlan(
            card.size(folder, "masks", MOST_MASKS),
            card.flag(folder, "causal"),
            card.choice(folder, "labels", get_args(Labels)),
            card.choice(folder, "anchoring", get_args(Anchoring)),
            gated=cls.gated,
            last=None if card.settings.get("last") is None else card.size(folder, "last"),
        )
        unknown = set(options) - {"cache", "steps", "refill"}
        if unknown:
            raise DrafterError(
                f"{cls.name}: option '{min(unknown)}' is unknown; give cache, steps or refill"
            )
        late = plan.last is not None
        adapter = RowLoRA.load(folder, lean.architecture, late=late, dtype=lean.dtype)
        return cls(adapter.to(lean.device).requires_grad_(False), plan, card.verifier, **options)  # type: ignore[arg-type]


class PeftBD(BlockDrafter):
    """The paper's drafter: the adapter acts in every row (V1)."""

    name = "peft-bd"
    gated = False


class GatedPeftBD(BlockDrafter):
    """The row-gated drafter on the verifier's own cache (V2)."""

    name = "peft-bd-gated"
    gated = True


def _check(cache: str | None, steps: int, refill: str, plan: BlockPlan) -> None:
    if plan.fault:
        raise DrafterError(plan.fault)
    if cache not in (None, "own", "shared"):
        raise DrafterError(f"cache '{cache}': {nearest(str(cache), ('own', 'shared'))}")
    if cache == "own" and plan.gated:
        raise DrafterError("cache 'own': a gated adapter reads the verifier's cache; leave it out")
    if refill not in ("masked", "all"):
        raise DrafterError(f"refill '{refill}': {nearest(str(refill), ('masked', 'all'))}")
    if plan.last and steps != 1:
        raise DrafterError(f"steps {steps}: masks that enter late are denoised once; give 1")
    if not isinstance(steps, int) or not 1 <= steps <= plan.masks:
        raise DrafterError(f"steps {steps}: give 1 to {plan.masks}, at most one per mask")


def _check_place(adapter: RowLoRA, plan: BlockPlan) -> None:
    """Masks enter where the adapter begins."""
    wanted = max(0, adapter.architecture.layers - plan.last) if plan.last else 0
    if adapter.enter != wanted:
        raise DrafterError(
            f"masks enter at the last {plan.last} layers, but the adapter begins at layer "
            f"{adapter.enter} of {adapter.architecture.layers}; train it again"
        )


def require_lean(verifier: Verifier, drafter: str) -> LeanVerifier:
    """The verifier as a lean decoder, or a :class:`DrafterError`: others cannot be adapted."""
    if isinstance(verifier, LeanVerifier):
        return verifier
    raise DrafterError(
        f"'{drafter}' needs the lean decoder (Llama, Mistral, Qwen2, Qwen3), and '{verifier.name}' "
        "runs through transformers; use the ngram drafter with it"
    )
