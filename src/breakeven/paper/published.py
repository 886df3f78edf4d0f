"""What the paper (arXiv 2607.12422) states beyond the figures of :data:`~.cost.oracle.PAPER`.

The bodies of its Tables 1–3 were not available to us: every figure here and there is from its
prose, and a cell that the prose does not fill is left empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.cost.oracle import PAPER


@dataclass(frozen=True, slots=True)
class Published:
    """The setting, the training and the loop outside the engine.

    >>> PUBLISHED.sequences, round(PUBLISHED.token_rate(PUBLISHED.loop_committed), 3)
    (640000, 0.114)
    """

    model: str = "Qwen3-0.6B"
    parameters: str = "10.1M of 605.9M (1.666 %)"
    fastmtp_parameters: str = "17.8M of 613.9M (2.905 %)"
    steps: int = 10_000
    rows_per_step: int = 64
    loss: float = 1.3041
    masked_accuracy: float = 0.6453
    target_accuracy: float = 0.4413
    loop_committed: float = 2.826
    """Tokens committed a round in the Hugging Face loop, block without the root."""
    loop_anchored: float = 3.046
    """The same, anchored."""
    loop_speed: float = 15.4
    loop_anchored_speed: float = 15.6
    """Tokens a second; printed as a range of both, 15.4–15.6."""
    profile_prompts: int = 20
    profile_passes: int = 1769
    """Draft passes, and as many verify passes."""
    max_prompt: int = 512
    max_new_tokens: int = 256

    @property
    def sequences(self) -> int:
        """Training texts seen: steps times the effective batch."""
        return self.steps * self.rows_per_step

    def token_rate(self, committed: float) -> float:
        """Accepted share of 16 drafts that an acceptance length implies (bonus taken off)."""
        return (committed - 1) / PAPER.peft_bd_drafts


PUBLISHED = Published()
"""The paper's other figures."""
