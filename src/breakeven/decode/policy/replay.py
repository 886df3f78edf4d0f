"""Ask a policy again what it chose: its choices follow from the ledger and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.core import Choice, Pass, Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.policy.base import Policy, Prospect
from breakeven.errors import DataError

JUDGED = (Phase.PLAIN, Phase.VERIFY)
"""The phases that end a round."""


def replay(policy: Policy, ledger: Ledger) -> Iterator[Choice]:
    """The choices of a fresh, prepared ``policy``, one a round, over the rounds of ``ledger``.

    They are those that the ledger's rounds carry, if it belongs to the run of such a policy and
    each of its requests has a name of its own. A ledger that has other passes than its rounds need
    is a :class:`DataError`.
    """
    rounds = iter(ledger.rounds)
    bought: list[Pass] = []
    for entry in ledger.passes:
        if entry.phase is Phase.PREFILL:
            continue
        bought.append(entry)
        if entry.phase not in JUDGED:
            continue
        group = [r for _, r in zip(range(entry.batch), rounds, strict=False)]
        if len(group) < entry.batch:
            raise DataError("the ledger has more passes than rounds: it is not of a policy's run")
        prospects = [Prospect(r.request, r.match, r.offered) for r in group]
        yield policy.choose(prospects, entry.context)
        policy.observe(bought, group)
        bought = []
