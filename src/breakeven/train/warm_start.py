"""A start for the FastMTP layer that already predicts something.

Copying the verifier's last layer alone starts at nothing: that layer expects the residual stream
the layers before it produce, and gets a normalised hidden state. But what it expects can be
predicted: ``W_in`` is solved by ridge regression so that ``W_in [norm h_i; norm e_{i+1}]`` comes
closest to the residual stream at position i + 1 in front of the last layer. The copied layer and
the copied final norm then do what they do in the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from breakeven.data.artifact import Row
from breakeven.drafters.mtp_layer import MTPLayer
from breakeven.progress import meter
from breakeven.train.clean import CleanStream
from breakeven.verifier.decoder import LeanVerifier

RIDGE = 1e-2  # of the mean diagonal


@torch.no_grad()
def copy_last_layer(layer: MTPLayer, verifier: LeanVerifier) -> None:
    """The verifier's last block and final norm; ``W_in`` passes the hidden half through."""
    source = verifier.blocks[-1]
    for name, norm in layer.block.norms.items():
        norm.copy_(source.norms[name])
    for group, linear in layer.block.linears.items():
        linear.load_state_dict(source.linears[group].state_dict())
    layer.norm.copy_(verifier.final_norm)
    size = verifier.shape.hidden_size
    layer.join.weight.copy_(torch.eye(size, 2 * size))


@torch.no_grad()
def regress_input(
    layer: MTPLayer, verifier: LeanVerifier, clean: CleanStream, rows: Sequence[Row]
) -> None:
    """Solve ``W_in`` on the texts of ``rows``; the passes are remembered for training."""
    size = verifier.shape.hidden_size
    gram = torch.zeros(2 * size, 2 * size, dtype=torch.float64)
    cross = torch.zeros(2 * size, size, dtype=torch.float64)
    with meter("start weights, texts read", len(rows)) as bar:
        for row in rows:
            inputs, target = _pairs(layer, verifier, clean, row)
            gram += inputs.T @ inputs
            cross += inputs.T @ target
            bar.advance()
    gram += RIDGE * gram.diagonal().mean() * torch.eye(2 * size, dtype=gram.dtype)
    layer.join.weight.copy_(torch.linalg.solve(gram, cross).T)


def _pairs(
    layer: MTPLayer, verifier: LeanVerifier, clean: CleanStream, row: Row
) -> tuple[Tensor, Tensor]:
    """``[L - 1, 2H]`` joined inputs and ``[L - 1, H]`` residual streams one token later."""
    before_last = verifier.shape.layers - 2
    if before_last >= 0:
        stream, residual = clean.tapped(row, before_last)
    else:  # the only layer reads the embeddings
        stream = clean.of(row)
        residual = verifier.embed(stream.token_ids.to(verifier.device))
    hidden = stream.hidden.to(verifier.device, verifier.dtype)[:-1]
    embedded = verifier.embed(stream.token_ids[1:].to(verifier.device))
    inputs = layer.joined(hidden, embedded)
    return inputs.double().cpu(), residual[1:].double().cpu()
