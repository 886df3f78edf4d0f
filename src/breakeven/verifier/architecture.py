"""The four families of the lean decoder, read from their Hugging Face ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from breakeven.errors import ModelError
from breakeven.verifier.interface import ModelShape

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes and switches of a Llama, Mistral, Qwen2 or Qwen3 decoder."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    norm_eps: float
    tied: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool

    @classmethod
    def from_config(cls, config: Any) -> Architecture:
        """Read a transformers config; raises :class:`ModelError` for what we do not implement."""
        reason = unsupported(config)
        if reason:
            raise ModelError(reason)
        family = config.model_type
        bias = bool(getattr(config, "attention_bias", False))
        window = sliding_window(config)
        return cls(
            family=family,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None)
            or config.hidden_size // config.num_attention_heads,
            max_positions=min(config.max_position_embeddings, window or 1 << 62),
            norm_eps=config.rms_norm_eps,
            tied=bool(config.tie_word_embeddings),
            qkv_bias=family == "qwen2" or bias,
            o_bias=bias,
            mlp_bias=bool(getattr(config, "mlp_bias", False)),
            qk_norm=family == "qwen3",
        )

    @property
    def shape(self) -> ModelShape:
        """The sizes others need."""
        return ModelShape(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            max_positions=self.max_positions,
        )

    def linear_sizes(self, group: str) -> tuple[int, tuple[int, ...]]:
        """Inputs and outputs per projection of one packed linear."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "qkv": (self.hidden_size, (q, kv, kv)),
            "o": (q, (self.hidden_size,)),
            "gate_up": (self.hidden_size, (self.intermediate_size,) * 2),
            "down": (self.intermediate_size, (self.hidden_size,)),
        }[group]


def sliding_window(config: Any) -> int | None:
    """The attention window in tokens, when the config really uses one.

    Contexts are kept within it, where a windowed and a full attention are the same thing.
    """
    window = getattr(config, "sliding_window", None)
    if not window or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None)
    return None if kinds and all(k == "full_attention" for k in kinds) else int(window)


def unsupported(config: Any) -> str | None:
    """Why the lean decoder cannot run a config, or None."""
    if config.model_type not in FAMILIES:
        return f"the lean decoder runs {', '.join(FAMILIES)}; the config says {config.model_type}"
    if config.hidden_act != "silu":
        return f"the lean decoder has SwiGLU only; the config says {config.hidden_act}"
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind not in ("default", "linear", "llama3", "yarn"):
        return f"rope type '{kind}' changes with the length, which a cached decoder cannot follow"
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        return "partial rotary embeddings are not implemented in the lean decoder"
    return None
