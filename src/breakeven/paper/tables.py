"""All tables of a run: the paper's figures, ours, and what differs."""

from __future__ import annotations

from breakeven.paper.measured import ablations, diagnostics, throughput, training
from breakeven.paper.priced import oracle, parts, profile
from breakeven.paper.table import Results, Table


def tables(verifier: str, results: Results) -> list[Table]:
    """Every table whose stage was run."""
    makers = (training, throughput, diagnostics, profile, oracle, ablations, parts)
    return [table for make in makers if (table := make(verifier, results)) is not None]
