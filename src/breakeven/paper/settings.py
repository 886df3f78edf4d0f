"""What differs between the paper's setting and this run, in a few words for each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from breakeven.paper.published import PUBLISHED

GRAPHS, EAGER, LOOP = "SGLang with CUDA graphs", "SGLang, eager", "transformers loop"


def model(name: str) -> str:
    """The verifier, where it is another."""
    same = name.rstrip("/").rsplit("/", 1)[-1].lower() == PUBLISHED.model.lower()
    return "" if same else f"model: {name}"


def machine(facts: Mapping[str, Any]) -> str:
    """The machine: the paper's is a GPU that its prose does not name."""
    if facts.get("gpu"):
        return f"machine: {facts['gpu']}"
    return f"machine: {facts.get('cpu', 'CPU')}, threads {facts.get('threads', '?')}"


def mode(ours: str, dtype: str, theirs: str) -> str:
    """Execution mode and precision."""
    return f"mode: {ours} {dtype} (paper: {theirs}, bfloat16)"


def budget(record: Mapping[str, Any] | None) -> str:
    """Training texts seen, for a drafter's row."""
    trained = record and record.get("budget")
    if not trained:
        return "budget: not known"
    seen = trained["sequences"]
    return f"budget: {seen:,} texts ({100 * seen / PUBLISHED.sequences:.2g} % of the paper's)"


def joined(*parts: str) -> str:
    """The parts that say something."""
    return "; ".join(part for part in parts if part)
