"""The slow tier: a few steps of training on the real SmolLM2-135M and its shipped artifact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Artifact, load_artifact
from breakeven.drafters.registry import create
from breakeven.train.methods import load_train_recipe
from breakeven.train.run import make_room, train_drafter
from breakeven.verifier.load import Loaded, load_verifier
from breakeven.verifier.rows import chain

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
QUICK = (
    "data.max_tokens=160",
    "train.max_minutes=null",
    "train.steps=8",
    "train.rows_per_step=1",
    "evaluate.prompts=4",
    "evaluate.max_new_tokens=24",
    "evaluate.every=null",
)
#: recipe -> settings of its own, and the acceptance length that a start alone reaches
CASES = {
    "peft_bd_gated_demo": (("method.anchors=8",), 2.05),
    "fastmtp_demo": (("method.start_rows=40", "data.rows=40", "train.lr=5e-4"), 1.15),
}


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_verifier("smollm2-135m")


@pytest.fixture(scope="module")
def artifact(loaded: Loaded) -> Artifact:
    return load_artifact(ROOT / "assets" / "smollm2-135m", loaded.identity)


def logits(loaded: Loaded) -> torch.Tensor:
    verifier = loaded.verifier
    ids = torch.tensor([[1, 4093, 198, 19556, 2, 198]])
    cache = verifier.new_cache(1, ids.shape[1])
    out = verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger()).logits
    assert out is not None
    return out


@pytest.mark.parametrize("name", CASES)
def test_a_few_steps_leave_a_useful_drafter_and_the_verifier_alone(
    name: str, loaded: Loaded, artifact: Artifact, tmp_path: Path
) -> None:
    own, least = CASES[name]
    recipe = load_train_recipe(ROOT / "recipes/smollm2-135m" / f"{name}.yaml", (*QUICK, *own))
    before = logits(loaded)
    make_room(tmp_path, force=False)
    report = train_drafter(recipe, loaded, artifact, tmp_path)
    assert report.outcome.validated.real.length > least
    assert torch.equal(before, logits(loaded))
    assert create(recipe.drafter, loaded, tmp_path).name == recipe.drafter
