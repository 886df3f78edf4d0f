"""``speculation_profile.json``: measured acceptance in the names other planners read.

The schema is the one proposed for NVIDIA Model Optimizer (pull requests 2247, 2313, 2315): a
planner reads measured rates there instead of guessing them. Lengths count the bonus token and
are before truncation, so ``mean_accept_length`` is one plus the sum of the marginal rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from breakeven.cost.breakeven import conditional_of, expected_committed
from breakeven.measure.acceptance import ALL, Acceptance
from breakeven.measure.configuration import Configuration
from breakeven.measure.records import Record


def speculation_profile(
    configuration: Configuration,
    acceptance: Sequence[Acceptance],
    records: Sequence[Record],
    description: Mapping[str, Any],
) -> dict[str, Any]:
    """The profile of one configuration.

    ``acceptance`` are its rows by category (:data:`ALL` among them), ``records`` its requests.
    """
    free = next(c["free"] for c in description["configurations"] if c["name"] == configuration.name)
    [whole] = [a for a in acceptance if a.category == ALL]
    per_request = [1 + r.accepted / r.rounds for r in records if r.rounds]
    return {
        **_rates(whole, configuration.k),
        "mean_accept_length_per_request": fmean(per_request) if per_request else None,
        "acceptance_length_histogram": {
            str(accepted + 1): count for accepted, count in enumerate(whole.accepted_histogram)
        },
        "measurement_conditions": {
            "tool": f"breakeven {description['breakeven']}",
            "dataset": f"{description['artifact']}:{description['split']}",
            "num_samples": description["prompts"],
            "osl": description["max_new_tokens"],
            "temperature": 0.0,
            "batch_size": 1,
            "dtype": description["dtype"],
            "verify_width": configuration.k + 1 - free,
        },
        "method": configuration.drafter,
        "draft_checkpoint": {"path": configuration.folder},
        "target_model": dict(description["verifier"]),
        "max_supported_k": configuration.k,
        "verification_method": "longest_prefix",
        "accept_length_model": "measured_per_k",
        "per_category": {
            a.category: _rates(a, configuration.k) for a in acceptance if a.category != ALL
        },
    }


def _rates(acceptance: Acceptance, k: int) -> dict[str, Any]:
    marginal = acceptance.survival(k) if acceptance.rounds else (0.0,) * k
    return {
        "num_speculative_tokens": k,
        "marginal_accept_rates": [round(s, 6) for s in marginal],
        "conditional_accept_rates": [round(s, 6) for s in conditional_of(marginal)],
        "mean_accept_length": round(expected_committed(marginal), 6),
    }
