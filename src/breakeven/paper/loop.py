"""The paper's first measurement path: a plain Python loop over transformers and peft modules.

    draft (adapter on) → verify (adapter off) → accept → crop the cache

Nothing of our engine runs here: the verifier is ``AutoModelForCausalLM``, the adapter is peft's
own LoRA layers, switched on and off around the passes, the cache is transformers'
``DynamicCache``, cropped after each pass. It drafts the very tokens of the engine's ``peft-bd``
(tests/test_paper_loop.py compares every round in float64), so whatever differs between the two
paths is implementation.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

from breakeven.core import Draft, Finish, Phase, Round
from breakeven.cost.ledger import Ledger
from breakeven.decode.request import Completion, Request
from breakeven.decode.round import accept
from breakeven.decode.stopping import Stopper
from breakeven.drafters.block_plan import MOST_MASKS, Anchoring, BlockPlan, Labels
from breakeven.drafters.card import Card
from breakeven.errors import DrafterError
from breakeven.verifier.lora import MASK_FILE

MODE = "transformers"
"""The execution mode that the loop's passes are entered under."""
DRAFTER = "peft-bd"


@dataclass(frozen=True, slots=True)
class Block:
    """What the loop knows of one trained drafter: its plan and the mask's input vector ``[H]``."""

    plan: BlockPlan
    mask_vector: Tensor

    @classmethod
    def read(cls, folder: Path) -> Block:
        """Read a ``peft-bd`` folder; :class:`DrafterError` for any other drafter's."""
        card = Card.read(folder, DRAFTER, None)
        plan = BlockPlan(
            card.size(folder, "masks", MOST_MASKS),
            card.flag(folder, "causal"),
            card.choice(folder, "labels", get_args(Labels)),
            card.choice(folder, "anchoring", get_args(Anchoring)),
            gated=False,
        )
        return cls(plan, load_file(folder / MASK_FILE)["mask_vector"])


@dataclass(slots=True)
class State:
    """One answer in the making: committed tokens, a cache of each kind, the account."""

    tokens: list[int]
    stopper: Stopper
    ledger: Ledger
    verified: Any = field(default_factory=DynamicCache)  # rows of tokens[:-1], adapter off
    drafted: Any = field(default_factory=DynamicCache)  # rows of the prefix, adapter on


class DiagnosticLoop:
    """Plain and speculative greedy decoding of one request at a time, without our engine."""

    def __init__(self, model: Any, blocks: Mapping[str, Block], eos: frozenset[int]) -> None:
        """``model`` is a causal LM of transformers, wrapped by peft where there are ``blocks``.

        ``blocks`` are by adapter name; ``eos`` ids end an answer.
        """
        self.model, self.eos = model, eos
        base = model.get_base_model() if blocks else model
        named = "cache" in inspect.signature(base.forward).parameters
        self._cache_argument = "cache" if named else "past_key_values"
        self.blocks = {
            name: Block(b.plan, b.mask_vector.to(model.device, model.dtype))
            for name, b in blocks.items()
        }

    @classmethod
    def load(
        cls,
        folder: Path,
        drafters: Mapping[str, Path],
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        eos: frozenset[int] = frozenset(),
    ) -> DiagnosticLoop:
        """The model directory ``folder`` with the adapters of ``drafters`` (name → folder)."""
        blocks = {name: Block.read(path) for name, path in drafters.items()}
        logging.disable_progress_bar()
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa"
        )
        for name, path in drafters.items():
            model = _adapted(model, name, path)
        return cls(model.to(device=device, dtype=dtype).eval(), blocks, eos)

    def decode(self, request: Request, drafter: str | None = None) -> tuple[Completion, Ledger]:
        """Answer ``request`` plainly, or with the drafter of that name; the ledger is its own."""
        room = self.model.config.max_position_embeddings - len(request.prompt)
        state = State(list(request.prompt), Stopper(request, None, room), Ledger())
        answer = Completion(request.id, state.stopper.tokens, Finish.LENGTH)
        plain = self._adapter_off() if drafter is None else nullcontext()
        with torch.inference_mode(), state.ledger.open(), plain:
            if drafter is not None:
                self.model.set_adapter(drafter)
            with self._adapter_off():
                first = self._verify(state, state.tokens, Phase.PREFILL)[-1]
            state.tokens.append(first)
            _, finish = state.stopper.take([first])
            while finish is None:
                finish = self._plain_step(state) if drafter is None else self._round(state, drafter)
        answer.finish = finish
        answer.rounds = state.ledger.rounds
        answer.prefill_s = state.ledger.seconds(Phase.PREFILL)
        answer.decode_s = state.ledger.wall_s - answer.prefill_s
        return answer, state.ledger

    def _plain_step(self, state: State) -> Finish | None:
        token = self._verify(state, state.tokens[-1:], Phase.PLAIN)[-1]
        state.tokens.append(token)
        return state.stopper.take([token])[1]

    def _round(self, state: State, drafter: str) -> Finish | None:
        """Draft, verify, accept, crop: ALGORITHMS 1.8."""
        most = state.stopper.remaining - 1
        draft = self._draft(state, self.blocks[drafter])[:most] if most else []
        phase = Phase.VERIFY if draft else Phase.PLAIN
        with self._adapter_off():
            choices = self._verify(state, [state.tokens[-1], *draft], phase)
        verified = accept(Draft(tuple(draft)), choices)
        state.tokens.extend(verified.tokens)
        _crop(state.verified, len(state.tokens) - 1)
        kept, finish = state.stopper.take(verified.tokens)
        state.ledger.rounds.append(Round("", len(draft), verified.accepted, kept))
        return finish

    def _verify(self, state: State, tokens: Sequence[int], phase: Phase) -> list[int]:
        """The verifier's choice after each of ``tokens``, which follow its cache."""
        context = state.verified.get_seq_length()
        ids = torch.tensor([tokens], device=self.model.device)
        keep = 1 if phase is Phase.PREFILL else len(tokens)
        with state.ledger.buy(
            phase, rows=len(tokens), batch=1, context=context, mode=MODE, model="verifier"
        ):
            out = self._forward(state.verified, input_ids=ids, logits_to_keep=keep)
            choices: list[int] = out.logits[0].argmax(dim=-1).tolist()
        return choices

    def _draft(self, state: State, block: Block) -> list[int]:
        """One token per mask, from one pass with the adapter on.

        The pass reads what its cache lacks of the prefix, then the block; the prefix rows stay.
        """
        plan = block.plan
        end = len(state.tokens) - plan.shape.rooted  # a rooted block holds the root itself
        context = state.drafted.get_seq_length()
        missing = state.tokens[context:end]
        with state.ledger.buy(
            Phase.DRAFT,
            rows=len(missing) + plan.shape.width,
            batch=1,
            context=context,
            mode=MODE,
            model=DRAFTER,
        ):
            embeddings = self._embeddings(state.tokens[context:], block)
            out = self._forward(
                state.drafted,
                inputs_embeds=embeddings,
                position_ids=torch.arange(
                    context, context + embeddings.shape[1], device=self.model.device
                )[None],
                attention_mask=self._mask(context, len(missing), plan),
                logits_to_keep=plan.masks + 1,  # the root and the masks
            )
            named: list[int] = out.logits[0].argmax(dim=-1).tolist()
        _crop(state.drafted, end)
        return [named[plan.source(offset)] for offset in range(1, plan.most + 1)]

    def _forward(self, cache: Any, **inputs: Any) -> Any:
        """One pass of the transformers model, which appends its rows to ``cache``."""
        return self.model(use_cache=True, **{self._cache_argument: cache}, **inputs)

    def _embeddings(self, tokens: Sequence[int], block: Block) -> Tensor:
        """``[1, W, H]``: the tokens, the root last, then the masks."""
        ids = torch.tensor(tokens, device=self.model.device)
        masks = block.mask_vector.expand(block.plan.masks, -1)
        return torch.cat((self.model.get_input_embeddings()(ids), masks))[None]

    def _mask(self, context: int, prefix: int, plan: BlockPlan) -> Tensor:
        """``[1, 1, W, context + W]``, added to the scores: a causal prefix, then the block."""
        width = prefix + plan.shape.width
        sees = torch.ones(width, width, dtype=torch.bool).tril()
        sees[prefix:, prefix:] = plan.shape.sees()
        sees = torch.cat((torch.ones(width, context, dtype=torch.bool), sees), dim=1)
        least = torch.finfo(self.model.dtype).min
        scores = torch.zeros(sees.shape, dtype=self.model.dtype).masked_fill(~sees, least)
        return scores[None, None].to(self.model.device)

    def _adapter_off(self) -> AbstractContextManager[None]:
        off: AbstractContextManager[None] = (
            self.model.disable_adapter() if self.blocks else nullcontext()
        )
        return off


def _adapted(model: Any, name: str, folder: Path) -> Any:
    """The model with one adapter more, in peft's own layers."""
    from peft import PeftModel

    try:
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), adapter_name=name)
            return model
        return PeftModel.from_pretrained(model, str(folder), adapter_name=name)
    except (ValueError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise DrafterError(f"{folder}: peft cannot load it ({reason}); train it again") from None


def _crop(cache: Any, length: int) -> None:
    """Keep the first ``length`` rows; transformers takes the number to remove, as a negative."""
    surplus = cache.get_seq_length() - length
    if surplus:
        cache.crop(-surplus)
