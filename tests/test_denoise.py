"""Denoising in several steps: filled tokens stay, and the wrong way is really another one."""

from __future__ import annotations

import pytest
import torch

from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.denoise import Canvas
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.errors import DrafterError
from tiny import tiny_verifier
from training import fit, objective_of, own_rows

PLAN = BlockPlan(4, labels="same", anchoring="none", gated=False)


def canvas(plan: BlockPlan = PLAN, steps: int = 2, refill: str = "masked") -> Canvas:
    return Canvas(plan, plan.shape, torch.tensor([7]), steps=steps, refill=refill)


def test_the_most_confident_half_is_filled_and_kept() -> None:
    block = canvas()
    block.fill(torch.tensor([[10, 11, 12, 13]]), torch.tensor([[0.1, 0.9, 0.2, 0.8]]))
    assert block.finished
    assert block.ids.tolist() == [[0, 11, 0, 13]]
    assert block.masked.tolist() == [[True, False, True, False]]
    assert block.drafts(torch.tensor([[20, 21, 22, 23]])).tolist() == [[20, 11, 22, 13]]


def test_refilling_everything_keeps_nothing() -> None:
    block = canvas(refill="all")
    block.fill(torch.tensor([[10, 11, 12, 13]]), torch.rand(1, 4))
    assert not block.masked.any()
    assert block.drafts(torch.tensor([[20, 21, 22, 23]])).tolist() == [[20, 21, 22, 23]]


def test_three_steps_fill_all_but_the_last_portion() -> None:
    block = canvas(steps=3)
    block.fill(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[0.9, 0.8, 0.1, 0.2]]))
    block.fill(torch.tensor([[9, 9, 5, 6]]), torch.tensor([[1.0, 1.0, 0.3, 0.4]]))
    assert block.ids.tolist() == [[1, 2, 5, 6]]


def test_a_free_token_is_filled_first() -> None:
    plan = BlockPlan(4)
    block = Canvas(plan, plan.shape, torch.tensor([7]), steps=4, refill="masked")
    block.fill(torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[0.0, 0.9, 0.9, 0.9, 0.9]]))
    assert block.ids.tolist() == [[1, 0, 0, 0]]


def test_the_rows_that_name_the_drafts() -> None:
    counts = torch.tensor([1, 3])
    assert canvas().sources(counts, 3).tolist() == [[3, 4, 5, 6]] * 2
    shifted = BlockPlan(2, gated=False, anchoring="none")
    assert Canvas(shifted, shifted.shape, counts, steps=1, refill="masked").sources(
        counts, 3
    ).tolist() == [[0, 3, 4], [2, 3, 4]]
    rooted = BlockPlan(2, labels="same", anchoring="root_in_block")
    assert Canvas(rooted, rooted.shape, counts, steps=1, refill="masked").sources(
        torch.tensor([0]), 0
    ).tolist() == [[1, 2]]


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("refill", ["masked", "all"])
@pytest.mark.parametrize(("name", "kind"), [("peft-bd", PeftBD), ("peft-bd-gated", GatedPeftBD)])
def test_the_output_is_the_verifiers_however_often_drafts_are_denoised(
    name: str, kind: type[PeftBD | GatedPeftBD], refill: str, steps: int
) -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    objective = objective_of(name, verifier, rows)
    fit(objective, rows, 5)
    drafter = kind(objective.adapter, objective.plan, steps=steps, refill=refill)  # type: ignore
    ledger = Ledger()
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    answers = generate(verifier, requests, drafter=drafter, k=3, batch=2, ledger=ledger)
    assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
    drafts = [p for p in ledger.passes if p.phase == "draft"]
    undrafted = sum(r.drafted == 0 for r in ledger.rounds)
    assert undrafted <= len(rows)  # only a last round has no room for drafts
    assert len(drafts) % steps == 0
    assert all(
        a.context == b.context for a, b in zip(drafts[::steps], drafts[1::steps], strict=True)
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 0}, "give 1 to 3"),
        ({"steps": 9}, "give 1 to 3"),
        ({"refill": "some"}, "refill 'some'"),
        ({"cache": "own"}, "reads the verifier's cache"),
        ({"cache": "mine"}, "cache 'mine'"),
        ({"denoise": 2}, "option 'denoise' is unknown"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, object], says: str, tmp_path: object
) -> None:
    verifier = tiny_verifier()
    objective_of("peft-bd-gated", verifier, own_rows(verifier, 1)).save(tmp_path)  # type: ignore
    with pytest.raises(DrafterError, match=says):
        GatedPeftBD.load(tmp_path, verifier, **options)  # type: ignore[arg-type]
