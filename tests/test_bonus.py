"""The bonus module: what it corrects, aboard the verify pass and in a pass of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.bonus import BONUS_FILE, BonusCorrection, BonusHead, CorrectedPeftBD
from breakeven.drafters.fused import Fused
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.tree import Tree
from breakeven.errors import DrafterError, TrainingError
from breakeven.train.bonus import BonusObjective, adapter_folder
from breakeven.train.recipe import BonusSettings
from breakeven.train.wiring import walk
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.graphs import GraphVerifier
from breakeven.verifier.int8 import Int8
from tiny import tiny_verifier
from training import fit, objective_of, own_rows, shaken


def trained(verifier: LeanVerifier, steps: int = 60) -> BonusObjective:
    rows = own_rows(verifier, 4)
    objective = objective_of("peft-bd-fused", verifier, rows)
    assert isinstance(objective, BonusObjective)
    fit(objective, rows, steps)
    return objective.eval()


def fused(objective: BonusObjective, verifier: LeanVerifier, **options: int | None) -> Fused:
    head = BonusHead(objective.bonus, verifier)
    return Fused(objective.lora, objective.plan, bonus=head, **options)


def test_groups_with_the_module_draft_what_teacher_forcing_foretells() -> None:
    """In float64, round for round: a group corrected by its bonus is a pass that knows it."""
    verifier = tiny_verifier()
    objective = trained(verifier, 30)
    rows = own_rows(verifier, 6, new_tokens=32, seed=5)
    drafter = fused(objective, verifier)
    for row in rows:
        ledger = Ledger()
        request = Request(row.id, row.prompt_ids, 32)
        [answer] = generate(verifier, [request], drafter=drafter, k=3, ledger=ledger)
        assert tuple(answer.tokens) == row.continuation_ids
        # the block behind token i - 1 drafts for root i; the first round has nothing to verify
        leading = [0, *objective.leading(row)]
        assert walk(leading, 32, free=0, k=3) == (31, len(answer.rounds))
        assert ledger.count(Phase.DRAFT) == 0


def test_untrained_it_changes_nothing_and_trained_it_does() -> None:
    verifier = tiny_verifier()
    objective = trained(verifier)
    rows = own_rows(verifier, 4)
    fresh = BonusHead(BonusCorrection(verifier.shape.hidden_size, 4).double(), verifier)
    drafters = [
        Fused(objective.lora, objective.plan),
        Fused(objective.lora, objective.plan, bonus=fresh),
        fused(objective, verifier),
    ]
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    found = [[a.rounds for a in generate(verifier, requests, drafter=d, k=3)] for d in drafters]
    accepted = [[[r.accepted for r in rounds] for rounds in answers] for answers in found]
    assert accepted[0] == accepted[1]
    assert sum(map(sum, accepted[2])) > sum(map(sum, accepted[0]))


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"groups": 2, "masks": 2}])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", ["eager", "resident", "fp32", "int8"])
def test_it_never_changes_the_output(kind: str, batch: int, options: dict[str, int | None]) -> None:
    makers: dict[str, Callable[[], LeanVerifier]] = {
        "eager": tiny_verifier,
        "resident": lambda: GraphVerifier(tiny_verifier(), capture=False),
        "fp32": lambda: tiny_verifier(dtype=torch.float32),
        "int8": lambda: tiny_verifier(dtype=torch.float32).rounded(),
    }
    verifier = makers[kind]()
    plain = tiny_verifier(dtype=verifier.dtype)
    objective = shaken(trained(plain, 1))
    assert isinstance(objective, BonusObjective)
    rows = own_rows(verifier, 4)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    for drafter in (
        fused(objective, verifier, **options),
        CorrectedPeftBD(objective.lora, objective.plan, None, BonusHead(objective.bonus, verifier)),
    ):
        for k in (1, 3):
            answers = generate(verifier, requests, drafter=drafter, k=k, batch=batch)
            assert {a.id: tuple(a.tokens) for a in answers} == {
                r.id: r.continuation_ids for r in rows
            }


def test_a_tree_of_one_candidate_each_is_the_corrected_chain() -> None:
    verifier = tiny_verifier()
    block = trained(verifier).drafter()
    requests = [Request(r.id, r.prompt_ids, 16) for r in own_rows(verifier, 3)]
    found = [
        [[r.accepted for r in a.rounds] for a in generate(verifier, requests, drafter=d, k=4)]
        for d in (block, Tree(block, top=1))
    ]
    assert found[0] == found[1]


def test_the_second_reading_is_of_the_rounded_head() -> None:
    verifier = tiny_verifier(dtype=torch.float32)
    weight = verifier.head_weight
    head = BonusHead(BonusCorrection(verifier.shape.hidden_size, 4), verifier)
    states = torch.randn(2, 3, verifier.shape.hidden_size)
    with torch.inference_mode():
        found = head.choose(states, torch.tensor([1, 2]))
    assert torch.equal(found, (states @ Int8.nearest(weight).plain().T).argmax(dim=-1))
    with torch.inference_mode():
        assert torch.equal(head.logits(states, torch.tensor([1, 2])), verifier.head(states))


def test_a_folder_has_a_module_or_not(tmp_path: Path) -> None:
    verifier = tiny_verifier()
    objective = trained(verifier)
    objective.save(tmp_path)
    assert Fused.load(tmp_path, verifier).bonus is not None
    assert Fused.load(tmp_path, verifier, bonus=False).bonus is None
    assert type(GatedPeftBD.load(tmp_path, verifier)) is GatedPeftBD
    with pytest.raises(DrafterError, match="bonus yes: give true or false"):
        Fused.load(tmp_path, verifier, bonus="yes")  # type: ignore[arg-type]
    weights = load_file(tmp_path / BONUS_FILE)
    save_file({"down.weight": weights["down.weight"]}, tmp_path / BONUS_FILE)
    with pytest.raises(DrafterError, match=r"tensor 'up\.weight' is missing"):
        Fused.load(tmp_path, verifier)
    (tmp_path / BONUS_FILE).write_bytes(b"nothing")
    with pytest.raises(DrafterError, match="cannot be read"):
        Fused.load(tmp_path, verifier)
    (tmp_path / BONUS_FILE).unlink()
    assert Fused.load(tmp_path, verifier).bonus is None
    with pytest.raises(DrafterError, match=r"no bonus.safetensors; train it"):
        Fused.load(tmp_path, verifier, bonus=True)


def test_only_a_block_behind_a_free_token_has_a_bonus(tmp_path: Path) -> None:
    verifier = tiny_verifier()
    rooted = BlockPlan(3, anchoring="root_in_block")
    adapter = trained(verifier, 1).lora
    head = BonusHead(BonusCorrection(verifier.shape.hidden_size, 4).double(), verifier)
    with pytest.raises(DrafterError, match="its first token free"):
        CorrectedPeftBD(adapter, rooted, None, head)


def test_the_adapter_is_the_recipes_or_the_shipped_one(tmp_path: Path) -> None:
    assert adapter_folder(BonusSettings(adapter=str(tmp_path)), None) == tmp_path
    with pytest.raises(TrainingError, match=r"give its folder: method\.adapter="):
        adapter_folder(BonusSettings(), None)


def test_only_the_module_is_trained() -> None:
    verifier = tiny_verifier()
    objective = trained(verifier, 1)
    assert {name for name, _ in objective.named_parameters()} == {
        "bonus.down.weight",
        "bonus.up.weight",
    }
    before = [p.clone() for p in objective.lora.parameters()]
    fit(objective, own_rows(verifier, 2), 3)
    assert all(torch.equal(a, b) for a, b in zip(before, objective.lora.parameters(), strict=True))
