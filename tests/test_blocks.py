"""What a step trains on: roots, hidden positions, labels; and what each offset weighs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from breakeven.core import Finish
from breakeven.data.artifact import Row
from breakeven.drafters.block_plan import BlockPlan
from breakeven.errors import RecipeError
from breakeven.train.blocks import cut, draw_anchors, draw_hidden, possible
from breakeven.train.methods import load_train_recipe
from breakeven.train.weighting import block_loss, offset_weights

ROW = Row("a", "chat", (1, 2, 3), (10, 11, 12, 13), Finish.STOP)
ROWS = [ROW, Row("b", "chat", (1, 2, 3), (10, 11, 12, 13), Finish.STOP)]
TEXT = torch.tensor([[1, 2, 3, 10, 11, 12, 13]])
PAPER = BlockPlan(3, labels="same", anchoring="none", gated=False)


def whole(plan: BlockPlan, anchors: list[int]) -> torch.Tensor:
    hidden = torch.ones(1, len(anchors), plan.masks, dtype=torch.bool)
    return cut(plan, TEXT, torch.tensor([7]), torch.tensor([anchors]), hidden).labels


@pytest.mark.parametrize(
    ("plan", "labels"),
    [
        (BlockPlan(3), [12, 13, -1]),  # behind root 10 stand 11 (free), 12, 13
        (BlockPlan(3, labels="same"), [12, 13]),
        (PAPER, [11, 12, 13]),
        (BlockPlan(3, labels="shift", anchoring="none", gated=False), [11, 12, 13, -1]),
        (BlockPlan(3, labels="same", anchoring="root_in_block"), [11, 12, 13]),
        (BlockPlan(3, labels="shift", anchoring="root_in_block"), [11, 12, 13, -1]),
    ],
)
def test_labels_are_the_tokens_behind_the_root(plan: BlockPlan, labels: list[int]) -> None:
    assert whole(plan, [3]).tolist() == [[labels]]
    assert len(plan.guesses) == len(labels)


def test_no_block_has_no_labels_and_none_lie_behind_the_text() -> None:
    assert whole(PAPER, [5, -1]).tolist() == [[[13, -1, -1], [-1, -1, -1]]]


def test_visible_tokens_are_shown_and_not_scored() -> None:
    hidden = torch.tensor([[[False, True, False]]])
    blocks = cut(PAPER, TEXT, torch.tensor([7]), torch.tensor([[3]]), hidden)
    assert blocks.ids.tolist() == [[[11, 12, 13]]]
    assert blocks.masked.tolist() == [[[False, True, False]]]
    assert blocks.labels.tolist() == [[[-1, 12, -1]]]
    shifted = BlockPlan(3, labels="shift", anchoring="root_in_block")
    blocks = cut(shifted, TEXT, torch.tensor([7]), torch.tensor([[2]]), hidden)
    assert blocks.ids.tolist() == [[[3, 10, 11, 12]]]
    assert blocks.masked.tolist() == [[[False, False, True, False]]]
    assert blocks.labels.tolist() == [[[-1, 11, -1, 13]]]  # 13 lies behind the block


def test_what_lies_behind_the_text_is_never_shown() -> None:
    nothing = torch.zeros(1, 1, 3, dtype=torch.bool)
    blocks = cut(PAPER, TEXT, torch.tensor([7]), torch.tensor([[5]]), nothing)
    assert blocks.masked.tolist() == [[[False, True, True]]]


def test_roots_are_where_rounds_begin_or_where_the_grid_has_them() -> None:
    assert possible(PAPER, ROW, "random").tolist() == [3, 4, 5]
    assert possible(BlockPlan(3), ROW, "random").tolist() == [3, 4]  # one token behind is free
    assert possible(PAPER, ROW, "grid").tolist() == [2, 5]  # blocks 10-12 and 13
    assert (
        possible(BlockPlan(3), Row("b", "chat", (1,), (2, 3), Finish.STOP), "random").numel() == 0
    )


def test_anchors_are_drawn_without_replacement_and_follow_the_generator() -> None:
    row = Row("c", "chat", (1,), tuple(range(50)), Finish.STOP)
    first, again = (
        draw_anchors(PAPER, [row], 8, "random", torch.Generator().manual_seed(4)) for _ in range(2)
    )
    assert torch.equal(first, again)
    assert len(set(first[0].tolist())) == 8


@given(
    masks=st.integers(1, 16),
    low=st.floats(0.05, 0.99),
    seed=st.integers(0, 99),
)
def test_the_hidden_share_lies_in_its_range(masks: int, low: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = draw_hidden((2, 5, masks), (low, 1.0), ROWS, generator).sum(-1)
    assert int(hidden.min()) >= 1
    assert int(hidden.min()) >= low * masks - 1e-3
    assert int(hidden.max()) <= masks
    assert bool(draw_hidden((1, 3, masks), (1.0, 1.0), ROWS[:1], generator).all())


def test_the_mean_hidden_share_of_the_paper_explains_its_two_accuracies() -> None:
    """ALGORITHMS 1.2: 0.4413 / 0.6453 = 0.684."""
    hidden = draw_hidden((1, 20_000, 16), (0.3, 1.0), ROWS[:1], torch.Generator().manual_seed(0))
    assert abs(hidden.double().mean().item() - 0.681) < 0.005


def test_a_likely_prefix_costs_less_than_the_same_tokens_in_another_order() -> None:
    """Readings D and E care where the likely token stands, A only by its weights."""
    good_first = torch.tensor([[0.9, 0.1]])
    good_last = good_first.flip(1)
    valid = torch.ones(1, 2, dtype=torch.bool)
    for reading in ("surrogate", "mixed"):
        first, last = (
            block_loss(-p.log(), p, valid, reading, 0.9)[0]  # type: ignore[arg-type]
            for p in (good_first, good_last)
        )
        assert first < last


def test_a_hopeless_first_token_makes_the_rest_count_less() -> None:
    valid = torch.ones(1, 2, dtype=torch.bool)
    losses = torch.tensor([[0.0, 1.0]])
    hopeless, sure = (
        block_loss(losses, torch.tensor([[p, 0.5]]), valid, "prefix", 1.0)[0] for p in (0.0, 1.0)
    )
    assert hopeless.item() == pytest.approx(0.5 / 1.5)
    assert sure.item() == pytest.approx(0.5)


def test_only_scored_offsets_count() -> None:
    losses, valid = torch.tensor([[2.0, 99.0]]), torch.tensor([[True, False]])
    for reading in ("geometric", "linear", "linear_step", "prefix"):
        chances = torch.zeros(1, 2)
        assert block_loss(losses, chances, valid, reading, 0.9)[0].item() == 2.0  # type: ignore[arg-type]
    assert offset_weights(1, "linear", 0.9).tolist() == [1.0]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("method.mask_ratio=[0.9,0.3]", "give 0 < low <= high <= 1"),
        ("method.anchoring=first_from_verifier", "needs a gated adapter"),
        ("method.tv=0.7", "soft \\+ tv = 1.2"),
        ("method.weighting=geometrical", "geometric"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    override: str, says: str, tmp_path: object
) -> None:
    path = tmp_path / "recipe.yaml"  # type: ignore[operator]
    path.write_text("drafter: peft-bd\n")
    with pytest.raises(RecipeError, match=says):
        load_train_recipe(path, [override, "method.soft=0.5"])


def test_shifted_labels_without_an_anchor_are_another_drafter() -> None:
    assert "that is anchoring" in (BlockPlan(anchoring="none").fault or "")
