"""Any other causal language model, through transformers, behind the same interface.

transformers' attention layers ask a cache object for the keys and values to attend to; we hand
them our own :class:`~breakeven.verifier.cache.KVCache`, so lengths, scratch rows and ragged
batches work as in the lean decoder. Models that keep another kind of state are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache

from breakeven.errors import ModelError
from breakeven.verifier.architecture import sliding_window
from breakeven.verifier.cache import Past, Span
from breakeven.verifier.interface import ModelShape, Output, Part, Verifier
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import Rows


class _PastAsCache(Cache):
    """Our cache in the shape transformers' attention layers call."""

    def __init__(self, past: Past, span: Span) -> None:
        self._past, self._span = past, span
        self.layers: list[Any] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """The hook attention layers call once per pass."""
        return self._past.extend(layer_idx, key_states, value_states, self._span)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """First free slot; positions are given explicitly, so nothing else reads it."""
        return self._span.stop - self._span.slots.shape[1]


class TransformersVerifier(Verifier):
    """A transformers causal LM whose attention reads our cache."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model, self.name = model.eval().requires_grad_(False), name
        self.shape = _shape(model.config)
        self.dtype, self.device = model.dtype, model.device
        accepted = inspect.signature(model.base_model.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        _check_exactness(self)

    @classmethod
    def load(
        cls,
        name: str,
        folder: Path,
        config: Any,
        dtype: torch.dtype,
        device: str,
        trust_remote_code: bool,
    ) -> TransformersVerifier:
        """Load from a directory; raises :class:`ModelError` in one line."""
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                attn_implementation="sdpa",
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{folder}: transformers cannot load it ({reason})") from None
        return cls(model.to(device), name)

    def embed(self, token_ids: Tensor) -> Tensor:
        """``[..., W]`` ids to ``[..., W, H]``."""
        embedded: Tensor = self.model.get_input_embeddings()(token_ids)
        return embedded

    def head(self, hidden: Tensor) -> Tensor:
        """``[..., H]`` to ``[..., V]`` logits, soft-capped where the model does so."""
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        scale = getattr(self.model.config, "logit_scale", None)
        if scale is not None:
            logits = logits * scale
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def body(
        self,
        rows: Rows,
        past: Past,
        adapter: RowLoRA | None = None,
        taps: Sequence[int] = (),
        part: Part | None = None,
    ) -> Output:
        """All layers and the final norm, with an explicit 4-D mask and positions."""
        if adapter is not None:
            raise ModelError(f"{self.name}: row-gated adapters need the lean decoder's families")
        if part is not None:
            raise ModelError(f"{self.name}: passes of some layers need the lean decoder's families")
        span = past.span(rows)
        mask = None
        if span.mask is not None:
            hidden = torch.finfo(self.dtype).min
            mask = torch.zeros(span.mask.shape, dtype=self.dtype, device=self.device)
            mask = mask.masked_fill(~span.mask, hidden)[:, None]
        out = self.model.base_model(
            input_ids=rows.token_ids,
            position_ids=rows.positions,
            attention_mask=mask,
            use_cache=True,
            output_hidden_states=bool(taps),
            **{self._cache_argument: _PastAsCache(past, span)},
        )
        tapped = {i: out.hidden_states[i + 1] for i in taps}
        return Output(out.last_hidden_state, taps=tapped)


def _shape(config: Any) -> ModelShape:
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    if heads is None:
        raise _refusal(config.model_type, config.model_type, "it has no attention heads")
    limit = getattr(text, "max_position_embeddings", 1 << 31)
    return ModelShape(
        vocab_size=text.vocab_size,
        hidden_size=text.hidden_size,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        max_positions=min(limit, sliding_window(text) or limit),
    )


@torch.inference_mode()
def _check_exactness(verifier: TransformersVerifier) -> None:
    """Refuse a model whose logits through our cache differ from its own in one plain pass."""
    from breakeven.verifier.rows import chain

    ids = (torch.arange(8) * 7 + 3)[None] % verifier.shape.vocab_size
    problem = None
    try:
        expected = verifier.model(ids.to(verifier.device), use_cache=False).logits[0, -1]
        cache = verifier.new_cache(1, 8)
        verifier.body(chain(ids[:, :5], cache.lengths).to(verifier.device), cache)
        cache.commit(5)
        out = verifier.body(chain(ids[:, 5:], cache.lengths).to(verifier.device), cache)
        gap = (verifier.head(out.hidden[0, -1]) - expected).abs().max()
        if float(gap) > 1e-2 * float(expected.abs().max()) + 1e-6:
            problem = f"its logits through the cache differ by {float(gap):.3g}"
    except (AttributeError, TypeError, RuntimeError, ValueError, KeyError, IndexError) as error:
        problem = " ".join(str(error).split())[:160]
    if problem:
        raise _refusal(verifier.name, verifier.model.config.model_type, problem)


def _refusal(name: str, kind: str, problem: str) -> ModelError:
    return ModelError(
        f"{name}: models of type '{kind}' keep a state that cannot be cut back after a rejected "
        f"draft, or need a cache of their own ({problem}); use a model with ordinary attention "
        "layers"
    )
