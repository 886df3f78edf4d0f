"""An ablation from plan to result.

    rehearse every variant → train what is not trained → decode what is not decoded → conclude

Each stage leaves files behind and skips what is there, so the same call goes on after a kill.
"""

from __future__ import annotations

from pathlib import Path

from breakeven.ablation.conclusion import Result, conclude
from breakeven.ablation.places import TABLE_FILE, Places, open_folder
from breakeven.ablation.plan import Plan
from breakeven.ablation.rehearsal import rehearse
from breakeven.ablation.table import write_markdown
from breakeven.ablation.training import train
from breakeven.ablation.trials import decode
from breakeven.data.artifact import Artifact
from breakeven.measure.prompts import choose
from breakeven.verifier.load import Loaded


def run_ablation(
    plan: Plan, loaded: Loaded, artifact: Artifact, out: Path, *, force: bool = False
) -> Result:
    """Run the chosen variants of ``plan`` into ``out``, write every file and return the result.

    Raises, before anything is trained, :class:`RecipeError` for a variant that cannot be run,
    :class:`DataError` for too few prompts, :class:`OutputExistsError` for a folder of something
    else or with runs of other recipes.
    """
    how, places = plan.grid.decode, Places(out)
    prompts = choose(artifact.rows(how.split), how.prompts, how.seed)
    plan = rehearse(plan, loaded, artifact)
    open_folder(places, plan, artifact, loaded.identity, force=force)
    train(plan, places, loaded, artifact)
    decode(plan, places, loaded, prompts)
    result = conclude(plan, places, loaded, artifact, prompts)
    write_markdown(result, out / TABLE_FILE)
    return result
