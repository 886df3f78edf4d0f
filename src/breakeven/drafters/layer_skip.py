"""``layer-skip``: the verifier without some of its layers drafts, token by token.

Nothing is trained (Draft & Verify, ALGORITHMS 6). Which layers can go is a property of the model:
:mod:`breakeven.train.layer_search` finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from breakeven.core import Phase
from breakeven.drafters.base import Context
from breakeven.drafters.card import Card
from breakeven.drafters.peft_bd import require_lean
from breakeven.drafters.stepwise import Stepwise
from breakeven.errors import DrafterError
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Output, Part, Verifier
from breakeven.verifier.rows import Rows


class LayerSkip(Stepwise):
    """Drafts with the layers that are left when ``skip`` is left out."""

    name = "layer-skip"

    def __init__(self, layers: int, skip: Iterable[int], verifier: Identity | None = None) -> None:
        """``skip`` are indices of the ``layers`` blocks; one at least must stay."""
        self.skip, self.layers, self.verifier = tuple(sorted(set(skip))), layers, verifier
        left = tuple(i for i in range(layers) if i not in self.skip)
        if not left or not set(self.skip) < set(range(layers)):
            raise DrafterError(
                f"layer-skip: skip {list(self.skip)}: give some of the layers 0 to {layers - 1}"
            )
        self._part = Part(left)

    @classmethod
    def untrained(cls, verifier: Verifier, k: int) -> LayerSkip:
        """Every second layer skipped; ``k`` changes nothing."""
        layers = require_lean(verifier, cls.name).shape.layers
        return cls(layers, range(1, layers, 2))

    def step(self, context: Context, rows: Rows) -> Output:
        """One pass through the layers that are left."""
        return context.verifier.run(
            Phase.DRAFT, rows, context.cache, context.ledger, logits="margins", part=self._part
        )

    def save(self, folder: Path) -> None:
        """Write the card; there are no weights."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"skip": list(self.skip), "layers": self.layers}
        Card(self.name, self.verifier, settings).write(folder)

    @classmethod
    def load(
        cls,
        folder: Path,
        verifier: Verifier,
        identity: Identity | None = None,
        skip: list[int] | None = None,
    ) -> LayerSkip:
        """Read what :meth:`save` wrote; :class:`DrafterError` if it does not fit ``verifier``.

        ``skip`` are other layers than the folder's.
        """
        lean = require_lean(verifier, cls.name)
        card = Card.read(folder, cls.name, identity)
        skip = card.setting(folder, "skip") if skip is None else skip
        if not isinstance(skip, list) or not all(isinstance(i, int) for i in skip):
            raise DrafterError(f"{folder}: skip = {skip!r} is not a list of layers; make it again")
        return cls(lean.shape.layers, skip, card.verifier)
