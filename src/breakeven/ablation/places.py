"""Where an ablation keeps what it has: one folder per trained run, one file per decoded one.

::

    grid.yaml                            the resolved grid; it marks the folder as an ablation's
    runs/<variant>/seed-<s>/             a drafter's folder, as `breakeven train` writes it
    decoded/<variant>/seed-<s>.jsonl     the records of the decoded prompts, and plain decoding's
    decoded/<variant>/seed-<s>.json      with which weights and settings they were decoded
    ablation.json, table.md              the result
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from breakeven.ablation.plan import Plan, Variant
from breakeven.config import write_recipe
from breakeven.data.artifact import Artifact
from breakeven.data.contract import FILE as CONTRACT_FILE
from breakeven.errors import BreakevenError, OutputExistsError
from breakeven.train.methods import load_train_recipe
from breakeven.train.provenance import PROVENANCE_FILE, file_sha256, read_provenance
from breakeven.train.run import RECIPE_FILE
from breakeven.verifier.identity import Identity

GRID_FILE = "grid.yaml"
RESULT_FILE = "ablation.json"
TABLE_FILE = "table.md"


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one ablation."""

    out: Path

    def run(self, variant: str, seed: int) -> Path:
        """The folder that ``variant`` is trained into."""
        return self.out / "runs" / variant / f"seed-{seed}"

    def records(self, variant: str, seed: int) -> Path:
        """The records of the decoded prompts."""
        return self.out / "decoded" / variant / f"seed-{seed}.jsonl"

    def decoding(self, variant: str, seed: int) -> Path:
        """With which weights and settings they were decoded."""
        return self.records(variant, seed).with_suffix(".json")

    def finished(self, variant: str, seed: int) -> bool:
        """Whether the run is trained to its end."""
        return (self.run(variant, seed) / PROVENANCE_FILE).is_file()


def open_folder(
    places: Places, plan: Plan, artifact: Artifact, identity: Identity, *, force: bool
) -> None:
    """Make the folder ready; raise :class:`OutputExistsError` before anything is changed.

    It may be new, empty, or an ablation's whose runs are those of the plan. ``force`` removes what
    the chosen variants have there.
    """
    out = places.out
    ours = (out / GRID_FILE).is_file()
    if out.exists() and not ours and (not out.is_dir() or any(out.iterdir())):
        raise OutputExistsError(f"{out}: exists and is not an ablation; give another --out")
    for variant in plan.training:
        anew = force and variant.name in plan.chosen
        for seed in () if anew else plan.grid.seeds:
            _check_run(places.run(variant.name, seed), variant, seed, artifact, identity)
    out.mkdir(parents=True, exist_ok=True)
    if force:
        for name in plan.chosen:
            shutil.rmtree(out / "runs" / name, ignore_errors=True)
            shutil.rmtree(out / "decoded" / name, ignore_errors=True)
    write_recipe(plan.grid, out / GRID_FILE)


def _check_run(
    folder: Path, variant: Variant, seed: int, artifact: Artifact, identity: Identity
) -> None:
    """A run that is there must be the one that is wanted."""
    if not (folder / RECIPE_FILE).is_file():
        return
    try:
        same = load_train_recipe(folder / RECIPE_FILE) == variant.recipes[seed]
    except BreakevenError:  # written by a version with other fields
        same = False
    if same and (folder / PROVENANCE_FILE).is_file():
        papers = read_provenance(folder)
        contract = file_sha256(artifact.path / CONTRACT_FILE)
        same = (papers["artifact_contract_sha256"], papers["verifier"]["weights_sha256"]) == (
            contract,
            identity.weights_sha256,
        )
    if not same:
        raise OutputExistsError(
            f"{folder}: was trained with another recipe, artifact or verifier; give another --out, "
            f"or --only {variant.name} --force to train it again"
        )
