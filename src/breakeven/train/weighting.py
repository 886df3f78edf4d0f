"""The "linear-prefix objective, gamma = 0.9": what it may mean (ALGORITHMS 1.7).

The paper names the objective and does not define it. Offsets k = 1..G of a block count, in each
reading, like this:

==============  ============================================================================
``geometric``   (A) ``gamma^(k-1)``; our default
``linear``      (B) ``1 - gamma (k-1) / (G-1)``
``linear_step`` (C) ``max(1 - (1-gamma)(k-1), 0)``
``surrogate``   (D) no weights: maximise ``sum_k gamma^(k-1) prod_{j<=k} p_j``, the expected
                accepted length with ``p_j`` the probability of the label
``prefix``      (E) ``gamma^(k-1)`` times ``prod_{j<k} ((1 - FLOOR) p_j + FLOOR)``, no gradient
``mixed``       (F) ``gamma`` (A) + ``(1 - gamma)`` (D)
==============  ============================================================================

Where a token of the block is visible it cannot be wrong: ``p_j = 1`` there.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Weighting = Literal["geometric", "linear", "linear_step", "surrogate", "prefix", "mixed"]

FLOOR = 0.5  # in reading E, so that a hopeless first token does not silence the rest


def block_loss(
    losses: Tensor, likelihoods: Tensor, valid: Tensor, weighting: Weighting, gamma: float
) -> tuple[Tensor, float]:
    """The loss and the weight it stands on.

    From ``[N, G]`` losses and label probabilities of N blocks, where ``valid``.

    A weighted mean of the losses, so that readings are comparable; (D) is 1 minus the expected
    share of the longest possible (discounted) prefix.

    >>> losses = torch.tensor([[1.0, 3.0]])
    >>> both = torch.ones(1, 2, dtype=torch.bool)
    >>> block_loss(losses, losses.neg().exp(), both, "geometric", 0.5)  # (1 + 1.5) / 1.5
    (tensor(1.6667), 1.5)
    >>> block_loss(losses, torch.tensor([[0.5, 0.5]]), both, "surrogate", 1.0)[0]  # .5 + .25
    tensor(0.6250)
    """
    if weighting == "mixed":
        first, weight = block_loss(losses, likelihoods, valid, "geometric", gamma)
        return gamma * first + (1 - gamma) * _surrogate(likelihoods, valid, gamma)[0], weight
    if weighting == "surrogate":
        return _surrogate(likelihoods, valid, gamma)
    weights = offset_weights(losses.shape[1], weighting, gamma).to(losses)
    if weighting == "prefix":
        weights = weights * _arrival(likelihoods.detach(), valid)
    weights = weights * valid
    return (losses * weights).sum() / weights.sum(), float(weights.sum())


def offset_weights(count: int, weighting: Weighting, gamma: float) -> Tensor:
    """``[count]`` weights of the offsets, without what depends on the predictions.

    >>> [round(w, 3) for w in offset_weights(16, "geometric", 0.9).tolist()][-1]
    0.206
    >>> round(offset_weights(16, "linear", 0.9)[-1].item(), 3)
    0.1
    >>> int((offset_weights(16, "linear_step", 0.9) > 1e-9).sum())
    10
    """
    k = torch.arange(count, dtype=torch.float64)
    if weighting == "linear":
        return 1 - gamma * k / max(1, count - 1)
    if weighting == "linear_step":
        return (1 - (1 - gamma) * k).clamp(min=0)
    return torch.tensor(gamma, dtype=torch.float64) ** k


def _surrogate(likelihoods: Tensor, valid: Tensor, gamma: float) -> tuple[Tensor, float]:
    reached = torch.where(valid, likelihoods, 1.0).cumprod(dim=1)
    weights = offset_weights(likelihoods.shape[1], "geometric", gamma).to(likelihoods) * valid
    return 1 - (weights * reached).sum() / weights.sum(), float(weights.sum())


def _arrival(likelihoods: Tensor, valid: Tensor) -> Tensor:
    """``[N, G]``: how likely the offsets before k are right, floored."""
    floored = torch.where(valid, (1 - FLOOR) * likelihoods + FLOOR, 1.0)
    before = torch.ones_like(floored[:, :1])
    return torch.cat((before, floored[:, :-1]), dim=1).cumprod(dim=1)
