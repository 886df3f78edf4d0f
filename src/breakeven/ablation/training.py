"""Train what is not trained yet, one run after the other."""

from __future__ import annotations

import gc
import sys

from breakeven.ablation.places import Places
from breakeven.ablation.plan import Plan
from breakeven.data.artifact import Artifact
from breakeven.train.run import make_room, train_drafter
from breakeven.verifier.load import Loaded


def train(plan: Plan, places: Places, loaded: Loaded, artifact: Artifact) -> None:
    """Train every variant with every seed; a finished run is left alone, a begun one goes on."""
    runs = [(variant, seed) for variant in plan.training for seed in plan.grid.seeds]
    for number, (variant, seed) in enumerate(runs, start=1):
        if places.finished(variant.name, seed):
            continue
        print(f"run {number} of {len(runs)}: {variant.name}, seed {seed}", file=sys.stderr)
        folder = places.run(variant.name, seed)
        make_room(folder, force=False)
        train_drafter(variant.recipes[seed], loaded, artifact, folder)
        gc.collect()  # the texts' states that this run remembered
