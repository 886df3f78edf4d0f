"""One process of a spread training run on a tiny verifier, started by ``torchrun`` in tests.

    torchrun --nproc-per-node 2 tests/spread.py OUT METHOD [shard] [stop=STEP]

Writes what the run did to ``OUT/result.json`` and leaves its checkpoints in ``OUT``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from breakeven.train.feed import Feed
from breakeven.train.loop import Trainer
from breakeven.train.processes import Processes
from breakeven.train.recipe import LoopSettings
from breakeven.train.validation import Validation
from breakeven.verifier.decoder import LeanVerifier
from tiny import tiny_verifier
from training import decoded, objective_of, own_rows


class Stopped(BaseException):
    """Stands for a kill of all processes."""


def trainer_of(folder: Path, name: str, *, shard: bool = False) -> Trainer:
    """Six steps of three rows; every root of a text is an anchor."""
    verifier: LeanVerifier = tiny_verifier(dtype=torch.float64)
    rows = own_rows(verifier, 7)
    settings = {} if name == "fastmtp" else {"anchors": 64}
    objective = objective_of(name, verifier, rows, **settings)
    return Trainer(
        objective,
        Feed(rows, 3, 0),
        LoopSettings(
            steps=6,
            rows_per_step=3,
            rows_per_pass=1,
            lr=1e-2,
            log_every=1,
            checkpoint_every=2,
            trackers=(),
            shard=shard,
        ),
        Validation(rows[:3], lambda o, some, _: decoded(o, verifier, some), every=3),
        folder,
        identity=name,
        processes=Processes("cpu"),
    )


def main() -> None:
    """Train, or stop before the step that ``stop=`` names."""
    folder, name, *words = sys.argv[1:]
    torch.set_num_threads(1)
    trainer = trainer_of(Path(folder), name, shard="shard" in words)
    stop = next((int(word.removeprefix("stop=")) for word in words if "stop=" in word), None)
    advance = trainer._advance

    def advance_or_stop(bar: object) -> None:
        if trainer._counts.step == stop:
            raise Stopped
        advance(bar)  # type: ignore[arg-type]

    trainer._advance = advance_or_stop  # type: ignore[method-assign]
    resumed = trainer.resumed_step
    outcome = trainer.run()
    trainer.save(Path(folder))
    if trainer._processes.main:
        result = {
            "resumed": resumed,
            "processes": outcome.processes,
            "parallel": outcome.parallel,
            "labels": outcome.counts.labels,
            "length": outcome.validated.real.length,
            "simulated": outcome.validated.simulated.acceptance_length,
        }
        (Path(folder) / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
