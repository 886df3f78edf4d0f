"""``provenance.json``: where a trained drafter comes from.

It is written last: its presence says that a run is finished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import breakeven
from breakeven.errors import DrafterError
from breakeven.files import write_whole
from breakeven.train.loop import Outcome
from breakeven.train.recipe import TrainRecipe
from breakeven.train.sizes import Sizes
from breakeven.train.wiring import SLACK, TOLERANCE
from breakeven.verifier.identity import Identity

PROVENANCE_FILE = "provenance.json"
LIBRARIES = ("torch", "transformers", "accelerate", "safetensors")
DEFINITIONS = {
    "acceptance_length": "tokens committed / verify passes, bonus token included, after truncation",
    "survival": "share of rounds whose first k drafts were all accepted, before truncation; a free "
    "first token counts as accepted",
    "simulated": "the same from teacher-forced predictions on validation rows; survival of the "
    "guessed drafts only",
    "accuracy": "masked_token: right / masked tokens, as many masked as in training; "
    "target_token_of_masked: right masked tokens / all tokens of the blocks; ratio_1: every token "
    "masked, as in drafting",
    "wiring": "rounds to commit the tokens of the validation answers, as teacher-forced guesses at "
    f"every place foretell and as decoded; a fault when decoding took over {TOLERANCE:.0%} and "
    f"{SLACK} rounds more",
}


def provenance(
    recipe: TrainRecipe, identity: Identity, contract_sha256: str, sizes: Sizes, outcome: Outcome
) -> dict[str, Any]:
    """Everything one needs to know to trust or repeat a training run."""
    counts, found = outcome.counts, outcome.validated
    noisy = found.simulated if found.masked is None else found.masked
    return {
        "drafter": recipe.drafter,
        "verifier": dataclasses.asdict(identity),
        "artifact_contract_sha256": contract_sha256,
        "recipe": recipe.model_dump(mode="json"),
        "parameters": dataclasses.asdict(sizes),
        "steps": counts.step,
        "kept_step": counts.best_step,
        "tokens_seen": counts.tokens,
        "labels_seen": counts.labels,
        "training_s": round(counts.elapsed_s, 1),
        "processes": outcome.processes,
        "parallel": outcome.parallel,
        "acceptance": {
            "acceptance_length": found.real.length,
            "survival": list(found.real.survival),
            "rounds": found.real.rounds,
            "prompts": found.real.prompts,
            "split": "validation",
        },
        "simulated": {
            "acceptance_length": found.simulated.acceptance_length,
            "survival": found.simulated.survival,
            "free": found.simulated.free,
        },
        "accuracy": {
            "masked_token": noisy.accuracy,
            "target_token_of_masked": noisy.target_accuracy,
            "target_token_at_ratio_1": found.simulated.accuracy,
            "per_offset_at_ratio_1": found.simulated.accuracies,
            "greedy_prefix_length": found.simulated.prefix_length,
            "loss": found.loss,
        },
        "wiring": {
            "tokens": found.wiring.tokens,
            "foretold_rounds": found.wiring.foretold,
            "decoded_rounds": found.wiring.decoded,
            "foretold_acceptance_length": found.wiring.length,
            "fault": found.wiring.fault,
        },
        "definitions": DEFINITIONS,
        "libraries": {
            "breakeven": breakeven.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
        },
        "source_commit": source_commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_provenance(folder: Path, content: dict[str, Any]) -> None:
    """Write it aside and move it into place."""
    write_whole(folder / PROVENANCE_FILE, json.dumps(content, indent=2) + "\n")


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read it; :class:`DrafterError` when the folder holds no finished drafter."""
    path = folder / PROVENANCE_FILE
    if not path.is_file():
        raise DrafterError(f"{folder}: no {PROVENANCE_FILE}; the training is not finished")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source_commit() -> str | None:
    """The git commit of the source tree the package runs from, if it is one."""
    root = Path(breakeven.__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
