"""``early-exit``: the verifier's first layers draft, and verification goes on where they stopped.

A draft pass runs layers ``0 .. exit - 1`` and reads the token off the final norm and the head.
Its keys and values are the verifier's own, and its exit state is what the verifier's next layer
would get, so the verify pass runs only the layers behind the exit (LayerSkip, ALGORITHMS 6). The
last draft has no pass after it, so its row is run up to the exit as well, without the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from breakeven.core import Draft, Phase
from breakeven.drafters.base import Boarding, Context, Drafter
from breakeven.drafters.card import Card
from breakeven.drafters.peft_bd import require_lean
from breakeven.errors import DrafterError
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Part, Verifier
from breakeven.verifier.rows import Rows, chain


class EarlyExit(Drafter):
    """Drafts with the first ``exit`` of ``layers`` layers and hands their states on."""

    name = "early-exit"
    sequential = True
    aboard = "states"

    def __init__(self, layers: int, exit_layer: int, verifier: Identity | None = None) -> None:
        if not 0 < exit_layer < layers:
            raise DrafterError(f"early-exit: exit {exit_layer}: give 1 to {layers - 1} layers")
        self.layers, self.exit_layer, self.verifier = layers, exit_layer, verifier
        self._first = Part(tuple(range(exit_layer)))
        self._rest = tuple(range(exit_layer, layers))
        self._states: list[Tensor] = []  # each [B, 1, H]

    def propose(self, context: Context, k: int) -> list[Draft]:
        """``k`` passes of one row through the first layers, and one for the last draft's row."""
        return [Draft(tuple(tokens)) for tokens in self._walk(context, k, None).tolist()]

    def draft_along(self, context: Context, drafts: Sequence[Draft]) -> None:
        """The same passes over these tokens; shorter drafts are filled up with 0."""
        k = max(len(d.tokens) for d in drafts)
        if k:
            given = [[*d.tokens, *[0] * (k - len(d.tokens))] for d in drafts]
            self._walk(context, k, torch.tensor(given))

    @torch.inference_mode()
    def _walk(self, context: Context, k: int, given: Tensor | None) -> Tensor:
        """``k + 1`` passes along drafts ``[B, k]``: those ``given``, or its own. Returns them."""
        cache, self._states = context.cache, []
        lengths = cache.lengths.clone()
        tokens = torch.tensor([tokens[-1] for tokens in context.tokens])
        drafts: list[Tensor] = []
        for step in range(k + 1):
            out = context.verifier.run(
                Phase.DRAFT,
                chain(tokens[:, None], cache.lengths),
                cache,
                context.ledger,
                taps=(self.exit_layer - 1,),
                logits="choices" if step < k else "none",
                part=self._first,
            )
            self._states.append(out.taps[self.exit_layer - 1])
            cache.commit(1)
            if out.choices is not None:
                own = out.choices[:, 0].cpu()
                tokens = own if given is None else given[:, step]
                drafts.append(tokens)
        cache.lengths.copy_(lengths)
        return torch.stack(drafts, dim=1)

    def board(self, context: Context, rows: Rows) -> Boarding:
        """The layers behind the exit, on the states that drafting left."""
        states, self._states = self._states, []
        if not states:  # nothing was drafted
            return Boarding(rows)
        assert rows.width <= len(states)
        return Boarding(rows, part=Part(self._rest, torch.cat(states[: rows.width], dim=1)))

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> EarlyExit:
        """The exit behind half of the layers; ``k`` changes nothing."""
        layers = require_lean(verifier, cls.name).shape.layers
        return cls(layers, max(1, layers // 2))

    def save(self, folder: Path) -> None:
        """Write the card; there are no weights."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"exit": self.exit_layer, "layers": self.layers}
        Card(self.name, self.verifier, settings).write(folder)

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        exit: int | None = None,
    ) -> EarlyExit:
        """Read what :meth:`save` wrote; :class:`DrafterError` if it does not fit ``verifier``.

        ``exit`` is another number of first layers than the folder's.
        """
        lean = require_lean(verifier, cls.name)
        card = Card.read(folder, cls.name, identity)
        layers = card.size(folder, "exit") if exit is None else exit
        return cls(lean.shape.layers, layers, card.verifier)
