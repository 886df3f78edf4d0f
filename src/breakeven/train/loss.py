"""What a prediction costs: cross-entropy to the token, KL or TV to the verifier's distribution.

The token is the verifier's greedy choice, so cross-entropy asks for exactly what greedy
verification accepts; 1 - TV is the acceptance when drafts are sampled (ALGORITHMS 1.7). The whole
distribution says much more per token, and with a small budget that decides.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def token_losses(
    logits: Tensor, labels: Tensor, truth: Tensor | None, soft: float, tv: float = 0.0
) -> Tensor:
    """``[N]`` losses of ``[N, V]`` logits: ``soft`` KL + ``tv`` TV + the rest CE to the labels.

    ``truth`` holds the verifier's log-probabilities ``[N, V]`` of the same tokens; it may be None
    when both shares are 0. Half-precision logits are widened.

    >>> logits = torch.tensor([[0.0, 1.0]])
    >>> token_losses(logits, torch.tensor([1]), logits.log_softmax(-1), soft=1.0).item()
    0.0
    >>> certain = torch.tensor([[1.0, 1e-9]]).log()
    >>> even = torch.zeros(1, 2)
    >>> round(token_losses(even, torch.tensor([0]), certain, soft=0.0, tv=1.0).item(), 3)
    0.5
    """
    ours = widened(logits).log_softmax(dim=-1)
    total = torch.zeros(len(labels), dtype=ours.dtype, device=ours.device)
    hard = 1.0 - soft - tv
    if hard > 0:
        total = total + hard * F.nll_loss(ours, labels, reduction="none")
    if soft > 0:
        assert truth is not None
        total = total + soft * F.kl_div(ours, truth, reduction="none", log_target=True).sum(-1)
    if tv > 0:
        assert truth is not None
        total = total + tv * 0.5 * (ours.exp() - truth.exp()).abs().sum(-1)
    return total


def widened(logits: Tensor) -> Tensor:
    """At least fp32, in which a softmax over a vocabulary is safe."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
