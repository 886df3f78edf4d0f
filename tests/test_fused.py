"""The draft aboard the verify pass, and verification from an exit state: one pass, same output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from breakeven.core import Draft, Phase
from breakeven.cost.curve import CostCurve
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.policy.adaptive import Adaptive
from breakeven.decode.policy.fixed import Fixed
from breakeven.decode.request import Request
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.block_plan import BlockPlan
from breakeven.drafters.early_exit import EarlyExit
from breakeven.drafters.fused import Fused, profile_of
from breakeven.drafters.hybrid import Hybrid
from breakeven.drafters.peft_bd import GatedPeftBD
from breakeven.drafters.registry import create
from breakeven.drafters.scripted import Dressed, Short, Synthetic
from breakeven.drafters.suffix import Suffix
from breakeven.drafters.wrapper import Counterfeit
from breakeven.errors import DataError, DrafterError
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Verifier
from breakeven.verifier.load import Loaded
from breakeven.verifier.lora import RowLoRA
from breakeven.verifier.rows import chain, draft_block, with_groups
from tiny import FAMILIES, tiny_config, tiny_verifier
from training import fit, objective_of, own_rows, shaken


def trained(verifier: LeanVerifier, count: int = 4, **settings: object) -> PeftBdObjective:
    objective = objective_of("peft-bd-gated", verifier, own_rows(verifier, count), **settings)
    assert isinstance(objective, PeftBdObjective)
    return objective


@pytest.mark.parametrize("masks", [3, 1])
@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"layers": 1, "late": True}])
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_are_separate_draft_passes(
    family: str, settings: dict[str, object], masks: int
) -> None:
    """In float64: group g is the draft pass after g accepted drafts, and the chain is untouched."""
    verifier = tiny_verifier(family)
    objective = shaken(trained(verifier, 1, **settings))
    shape = replace(objective.plan.shape, masks=masks)
    prompt, drafts = [5, 2, 9, 4], [7, 1]
    cache = verifier.new_cache(1, 32)
    layout = chain(torch.tensor([prompt[:-1]]), cache.lengths)
    verifier.run(Phase.PREFILL, layout, cache, Ledger())
    cache.commit(3)
    row = chain(torch.tensor([[prompt[-1], *drafts]]), cache.lengths)
    plain = verifier.run(Phase.VERIFY, row, cache, Ledger()).logits
    fused = verifier.run(
        Phase.VERIFY, with_groups(row, shape, 3), cache, Ledger(), adapter=objective.adapter
    ).logits
    assert plain is not None
    assert fused is not None
    assert torch.equal(fused[:, :3], plain) or (fused[:, :3] - plain).abs().max() < 1e-12
    for accepted in range(3):
        text = [*prompt, *drafts[:accepted]]
        alone = verifier.new_cache(1, 32)
        verifier.run(
            Phase.PREFILL, chain(torch.tensor([text[:-1]]), alone.lengths), alone, Ledger()
        )
        alone.commit(len(text) - 1)
        block = draft_block(torch.tensor([text[-1:]]), alone.lengths, shape)
        out = verifier.run(Phase.DRAFT, block, alone, Ledger(), adapter=objective.adapter).logits
        assert out is not None
        group = fused[:, 3 + masks * accepted : 3 + masks * (accepted + 1)]
        assert (group - out[:, 1:]).abs().max() < 1e-10


@pytest.mark.parametrize(("groups", "masks"), [(None, 3), (1, 3), (2, 3), (2, 2), (None, 1)])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_fused_round_is_one_pass_and_changes_no_token(
    batch: int, groups: int | None, masks: int
) -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 4)
    objective = trained(verifier)
    fit(objective, rows, 40)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    for k in (1, 2, 5):
        ledger = Ledger()
        drafter = Fused(objective.adapter, objective.plan, groups=groups, masks=masks)
        answers = generate(verifier, requests, drafter=drafter, k=k, batch=batch, ledger=ledger)
        assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
        assert ledger.count(Phase.DRAFT) == 0
        assert any(r.accepted for r in ledger.rounds)
        assert max(r.drafted for r in ledger.rounds) == min(k, masks)
        widest = max(p.rows for p in ledger.passes if p.phase is Phase.VERIFY)
        assert widest <= min(k, masks) + 1 + drafter.scratch_rows


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_rounds_are_those_that_a_layout_is_priced_by(groups: int) -> None:
    """Widths of passes and rounds without drafts, as :mod:`breakeven.cost.layout` says."""
    verifier = tiny_verifier()
    rows = own_rows(verifier, 2, new_tokens=48)
    objective = trained(verifier)
    fit(objective, rows, 20)
    drafter = Fused(objective.adapter, objective.plan, groups=groups, masks=2)
    for row in rows:
        ledger = Ledger()
        request = Request(row.id, row.prompt_ids, 48)
        list(generate(verifier, [request], drafter=drafter, k=2, ledger=ledger))
        passes = [p for p in ledger.passes if p.phase is Phase.VERIFY]
        left = 0
        for bought, entry in list(zip(passes, ledger.rounds, strict=True))[:-2]:  # room is short
            assert entry.drafted == left
            assert bought.rows == left + 1 + 2 * min(left + 1, groups)
            left = 2 if entry.accepted < groups else 0


def test_no_more_groups_than_outcomes_are_kept_room_for() -> None:
    drafter = Fused(trained(tiny_verifier(), 1).adapter, BlockPlan(3), groups=10**6, masks=2)
    assert (drafter.scratch_rows, drafter.layout["groups"]) == (6, 3)


def test_no_masks_are_plain_decoding() -> None:
    verifier = tiny_verifier()
    [row] = own_rows(verifier, 1)
    drafter = Fused(trained(verifier, 1).adapter, BlockPlan(3), masks=0)
    assert (drafter.longest, drafter.scratch_rows) == (0, 0)
    for policy in (Fixed(3), Adaptive(3, CostCurve.of({1: 1.0, 2: 1.0}))):
        ledger = Ledger()
        request = Request(row.id, row.prompt_ids, 16)
        [answer] = generate(verifier, [request], drafter=drafter, policy=policy, ledger=ledger)
        assert tuple(answer.tokens) == row.continuation_ids
        assert {p.rows for p in ledger.passes if p.phase is not Phase.PREFILL} == {1}


def profiled(verifier: LeanVerifier, folder: Path, rates: list[float]) -> Path:
    objective = trained(verifier, 1)
    objective.save(folder)
    free = {"verify_width": len(rates)}
    profile = {
        "num_speculative_tokens": len(rates),
        "conditional_accept_rates": rates,
        "measurement_conditions": free,
    }
    (folder / "speculation_profile.json").write_text(json.dumps(profile))
    return folder


@pytest.mark.parametrize(
    ("rate", "slope", "groups", "masks"),
    [(0.8, 0.0, 4, 3), (0.8, 1.0, 1, 0), (0.2, 0.05, 1, 1), (0.8, 0.09, 2, 1)],
)
def test_the_layout_follows_from_the_curve_and_the_profile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rate: float,
    slope: float,
    groups: int,
    masks: int,
) -> None:
    verifier = tiny_verifier()
    folder = profiled(verifier, tmp_path, [1.0, rate, rate / 4, rate / 4])
    asked: list[int] = []

    def curve(verifier: Verifier, widest: int, adapter: RowLoRA) -> CostCurve:
        asked.append(widest)
        return CostCurve.of({1: 1.0, 2: 1.0 + slope})

    monkeypatch.setattr("breakeven.drafters.fused.quick_curve", curve)
    drafter = Fused.load(folder, verifier)
    assert (drafter.groups, drafter.shape.masks) == (groups, masks)
    assert drafter.scratch_rows == masks * groups
    assert asked == [16]
    forced = Fused.load(folder, verifier, groups=3, masks=2)
    assert (forced.groups, forced.longest, forced.scratch_rows) == (3, 2, 6)
    assert asked == [16]
    assert Fused.load(folder, verifier, masks=2).shape.masks in (0, 2)
    assert asked == [16, 9]


@pytest.mark.parametrize("slope", [0.0, 0.05, 0.09, 1.0])
@pytest.mark.parametrize("given", [{}, {"masks": 2}, {"drafts": 1}, {"groups": 1, "drafts": 2}])
def test_the_layout_given_by_hand_is_the_same_drafter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slope: float, given: dict[str, int]
) -> None:
    """Where it was chosen by prices, and where passes cost something else by now."""
    verifier = tiny_verifier()
    folder = profiled(verifier, tmp_path, [1.0, 0.8, 0.6, 0.6])
    identity = Identity("tiny", *["0" * 64] * 3)
    loaded = Loaded(verifier, None, identity, frozenset(), tmp_path)

    def made(slope: float, options: Mapping[str, int]) -> Drafter:
        curve = CostCurve.of({1: 1.0, 2: 1.0 + slope})
        monkeypatch.setattr("breakeven.drafters.fused.quick_curve", lambda *_: curve)
        return create("peft-bd-fused", loaded, folder, **options)

    chosen = made(slope, given)
    assert chosen.layout in ({"masks": 0}, {**chosen.layout, **given})
    again = made(1.0 - slope, chosen.layout)
    assert again.layout == chosen.layout
    assert (again.longest, again.scratch_rows) == (chosen.longest, chosen.scratch_rows)


def test_drafts_that_the_profile_does_not_know_are_said(tmp_path: Path) -> None:
    folder = profiled(tiny_verifier(), tmp_path, [1.0, 0.8])
    with pytest.raises(DrafterError, match="drafts 2: the profile says how often 1 are right"):
        Fused.load(folder, tiny_verifier(), drafts=2)
    assert Fused.load(folder, tiny_verifier(), groups=2, drafts=2).longest == 2


def test_a_measured_layout_changes_no_token(tmp_path: Path) -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 2)
    folder = profiled(verifier, tmp_path, [1.0, 0.9, 0.9, 0.9])
    drafter = Fused.load(folder, verifier)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    answers = generate(verifier, requests, drafter=drafter, k=3)
    assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
    (folder / "speculation_profile.json").unlink()
    assert Fused.load(folder, verifier).scratch_rows == 12
    assert profile_of(folder, True) is None
    (folder / "speculation_profile.json").write_text("{}")
    with pytest.raises(DataError, match="not a speculation profile"):
        Fused.load(folder, verifier)
    (folder / "fused_profile.json").write_text("{}")
    assert profile_of(folder, True) == folder / "fused_profile.json"
    assert profile_of(folder, False) == folder / "speculation_profile.json"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"groups": 0}, "groups 0: give 1 or more, or auto"),
        ({"groups": "all"}, "option groups = all: give a whole number or 'auto'"),
        ({"masks": 4}, "masks 4: give 1 to 3"),
        ({"masks": True}, "option masks = True: give a whole number"),
        ({"drafts": 4}, "drafts 4: give 1 to 3, no more than a group has masks"),
        ({"drafts": 3, "masks": 2}, "drafts 3: give 1 to 2"),
        ({"drafts": 0}, "drafts 0: give 1 to 3"),
        ({"mask": 2}, "has no option 'mask'; did you mean 'masks'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, object], says: str
) -> None:
    verifier = tiny_verifier()
    loaded = Loaded(verifier, None, Identity("tiny", *["0" * 64] * 3), frozenset(), tmp_path)
    trained(verifier, 1).save(tmp_path)
    with pytest.raises(DrafterError, match=says):
        create("peft-bd-fused", loaded, tmp_path, **options)


def test_the_drafts_are_those_of_a_pass_of_their_own() -> None:
    """Behind the bonus the fused draft guesses what the gated one guesses behind its free token."""
    verifier = tiny_verifier()
    [row] = own_rows(verifier, 1)
    objective = trained(verifier, 1)
    fit(objective, [row], 10)
    request = Request(row.id, row.prompt_ids, 16)
    fused = Fused(objective.adapter, objective.plan)
    gated = objective.drafter()
    [one] = generate(verifier, [request], drafter=fused, k=3)
    [two] = generate(verifier, [request], drafter=gated, k=4)
    # the first fused round has nothing to verify; from then on both see the same roots as long as
    # the same number of guesses is accepted
    assert one.tokens == two.tokens
    assert one.rounds[0].drafted == 0
    assert one.rounds[1].accepted == two.rounds[0].accepted - 1


def test_near_the_context_limit_groups_stay_inside() -> None:
    verifier = LeanVerifier.from_config(tiny_config(max_position_embeddings=24))
    row = own_rows(verifier, 1, new_tokens=16)[0]
    objective = trained(verifier, 1)
    drafter = Fused(objective.adapter, objective.plan)
    plain, spoken = (
        next(iter(generate(verifier, [Request("a", row.prompt_ids, 64)], drafter=d, k=3))).tokens
        for d in (None, drafter)
    )
    assert plain == spoken


@pytest.mark.parametrize(
    ("plan", "groups", "says"),
    [
        (BlockPlan(3, labels="same"), None, "shifted labels"),
        (BlockPlan(3, anchoring="root_in_block"), None, "the root before the block"),
        (BlockPlan(3), 0, "groups 0"),
    ],
)
def test_what_cannot_ride_is_refused(plan: BlockPlan, groups: int | None, says: str) -> None:
    verifier = tiny_verifier()
    with pytest.raises(DrafterError, match=says):
        Fused(trained(verifier, 1).adapter, plan, groups=groups)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("exit_layer", [1, 3])
def test_verification_goes_on_where_the_draft_stopped(
    exit_layer: int, batch: int, native: bool
) -> None:
    verifier = LeanVerifier.from_config(tiny_config(num_hidden_layers=4), native=native)
    rows = own_rows(verifier, 4)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    ledger = Ledger()
    drafter = EarlyExit(4, exit_layer)
    answers = generate(verifier, requests, drafter=drafter, k=3, batch=batch, ledger=ledger)
    assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
    verified = [p for p in ledger.passes if p.phase is Phase.VERIFY]
    left = {1: "3 layers", 3: "1 layer"}[exit_layer]
    assert any(p.model == left for p in verified)


def test_an_exit_is_one_of_the_layers(tmp_path: Path) -> None:
    verifier = tiny_verifier(layers=4)
    EarlyExit(4, 2).save(tmp_path)
    assert EarlyExit.load(tmp_path, verifier).exit_layer == 2
    for wrong in (0, 4):
        with pytest.raises(DrafterError, match="give 1 to 3 layers"):
            EarlyExit(4, wrong)


def test_a_late_adapter_is_read_as_one_and_must_fit_its_card(tmp_path: Path) -> None:
    verifier = tiny_verifier(layers=4)
    objective = trained(verifier, 1, layers=2, late=True)
    assert objective.adapter.enter == 2
    objective.save(tmp_path)
    assert GatedPeftBD.load(tmp_path, verifier).adapter.enter == 2
    card = tmp_path / "drafter.json"
    card.write_text(card.read_text().replace('"last": 2', '"last": 3'))
    with pytest.raises(DrafterError, match="begins at layer 2 of 4"):
        GatedPeftBD.load(tmp_path, verifier)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_wrapper_lets_the_inner_drafter_ride(batch: int) -> None:
    """Hybrid of a fused drafter: long looked-up chains, and the groups still aboard."""
    verifier = tiny_verifier()
    rows = own_rows(verifier, 4, new_tokens=32)
    objective = trained(verifier)
    fit(objective, rows, 40)
    requests = [Request(r.id, r.prompt_ids, 32) for r in rows]
    for match in (1, 99):  # always looked up, never looked up
        ledger = Ledger()
        drafter = Hybrid(Suffix(), Fused(objective.adapter, objective.plan), match=match)
        answers = generate(verifier, requests, drafter=drafter, k=3, batch=batch, ledger=ledger)
        assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
        assert ledger.count(Phase.DRAFT) == 0
        assert any(r.accepted for r in ledger.rounds)


class Shifted(Counterfeit):
    """Proposes other tokens than its drafter."""

    def propose(self, context: Context, k: int) -> list[Draft]:
        drafts = super().propose(context, k)
        return [Draft(tuple((t + 1) % 64 for t in d.tokens)) for d in drafts]


@pytest.mark.parametrize("batch", [1, 3])
def test_exit_states_go_with_the_tokens_they_were_made_of(batch: int) -> None:
    """Other tokens must not be verified on them; a script's are walked along, and may."""
    verifier = tiny_verifier(layers=4)
    rows = own_rows(verifier, 3)
    script = {r.prompt_ids: r.continuation_ids for r in rows}
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    scripted = Dressed(EarlyExit(4, 1), Synthetic(script, 64, [0.7, 0.5]))
    short = Dressed(EarlyExit(4, 1), Short(script, 64))
    accepted = {}
    for drafter in (Shifted(EarlyExit(4, 1)), scripted, short):
        ledger = Ledger()
        answers = generate(verifier, requests, drafter=drafter, k=3, batch=batch, ledger=ledger)
        assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
        accepted[drafter] = sum(r.accepted for r in ledger.rounds)
    assert accepted[scripted] > 5, "the states were right: drafts were accepted"
    assert accepted[short] > 5


@pytest.mark.parametrize("batch", [1, 3])
def test_a_script_in_the_clothes_of_a_fused_drafter_rides_with_its_masks(batch: int) -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    script = {r.prompt_ids: r.continuation_ids for r in rows}
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    ledger = Ledger()
    drafter = Dressed(Fused.untrained(verifier, 3), Synthetic(script, 64, [0.8]))
    answers = generate(verifier, requests, drafter=drafter, k=3, batch=batch, ledger=ledger)
    assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
    assert sum(r.accepted for r in ledger.rounds) > 5
    assert max(p.rows for p in ledger.passes if p.phase is Phase.VERIFY) == 4 + 4 * 3
