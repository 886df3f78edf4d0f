"""Every trainable method, one suite: what is trained is what decodes, and nothing leaks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import Row
from breakeven.decode.generate import generate
from breakeven.decode.request import Completion, Request
from breakeven.drafters.base import Context
from breakeven.drafters.bonus import CorrectedPeftBD
from breakeven.drafters.fastmtp import FastMTP
from breakeven.drafters.peft_bd import GatedPeftBD, PeftBD
from breakeven.errors import DrafterError
from breakeven.train.blocks import Blocks
from breakeven.train.objective import Objective
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.rows import chain
from tiny import tiny_verifier
from training import METHODS, VARIANTS, decoded, fit, objective_of, own_rows, shaken

DRAFTERS = {
    "peft-bd": PeftBD,
    "peft-bd-gated": GatedPeftBD,
    "peft-bd-fused": CorrectedPeftBD,
    "fastmtp": FastMTP,
}
OURS = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)


@pytest.fixture(scope="module")
def verifier() -> LeanVerifier:
    return tiny_verifier()


@pytest.fixture(scope="module")
def rows(verifier: LeanVerifier) -> list[Row]:
    return own_rows(verifier, 4)


def drafts_at(objective: Objective, verifier: LeanVerifier, row: Row, root: int) -> list[int]:
    """What the deployed drafter proposes when token ``root`` of the text was committed last."""
    text = [*row.prompt_ids, *row.continuation_ids]
    drafter = objective.drafter()
    drafter.reserve(1, len(text) + 8)
    cache = verifier.new_cache(1, len(text) + 8)
    context = Context(verifier, [text[: root + 1]], cache, Ledger())
    out = verifier.run(
        Phase.PREFILL, chain(torch.tensor([text[:root]]), cache.lengths), cache, context.ledger
    )
    cache.commit(root)
    drafter.begin(context, 0, out.hidden if drafter.needs_hidden else None)
    return list(drafter.propose(context, objective.drafts)[0].tokens)


def counts(answer: Completion) -> list[tuple[int, int, int]]:
    """Drafted, accepted and committed tokens of each round."""
    return [(r.drafted, r.accepted, r.committed) for r in answer.rounds]


@pytest.mark.parametrize("name", METHODS)
def test_the_score_of_training_is_the_acceptance_of_decoding(
    name: str, verifier: LeanVerifier, rows: list[Row]
) -> None:
    """T23, in whole drafters: propose at every root, compare with the text, count."""
    objective = objective_of(name, verifier, rows, **({"anchors": 64} if "bd" in name else {}))
    fit(objective, rows, 5)
    with torch.no_grad():
        score = objective.eval()(rows, torch.Generator().manual_seed(0)).score
    survived = [0] * len(score.survived)
    for row in rows:
        text = [*row.prompt_ids, *row.continuation_ids]
        for root in range(len(row.prompt_ids), len(text) - 1):  # as labels at random starts
            guesses = drafts_at(objective, verifier, row, root)[score.free :]
            truth = text[root + 1 + score.free :]
            for k, (guess, token) in enumerate(zip(guesses, truth, strict=False)):
                if guess != token:
                    break
                survived[k] += 1
    assert survived == score.survived.tolist()
    assert sum(survived) > 0


@pytest.mark.parametrize("name", METHODS)
def test_one_sample_can_be_learned_by_heart(name: str, verifier: LeanVerifier) -> None:
    rows = own_rows(verifier, 1, new_tokens=24, seed=9)
    objective = objective_of(name, verifier, rows, **({"anchors": 64} if "bd" in name else {}))
    steps = 120 if name == "fastmtp" else 400 if name.endswith(("late", "fused")) else 250
    fit(objective, rows, steps)
    acceptance = decoded(objective, verifier, rows)
    assert acceptance.survival == (1.0,) * objective.drafts


@pytest.mark.parametrize("soft", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", METHODS)
def test_every_loss_learns(name: str, soft: float, verifier: LeanVerifier, rows: list[Row]) -> None:
    start = {"start": "random"} if name == "fastmtp" else {}
    objective = objective_of(name, verifier, rows, soft=soft, **start)
    with torch.no_grad():
        before = objective(rows, torch.Generator().manual_seed(0)).score.accuracy
    fit(objective, rows, 30)
    with torch.no_grad():
        after = objective(rows, torch.Generator().manual_seed(0)).score.accuracy
    assert after > before + 0.1


@pytest.mark.parametrize("name", METHODS)
def test_a_perfect_drafter_has_no_divergence_left(name: str) -> None:
    """KL is to the verifier's distribution in front of the very label: zero when states agree."""
    verifier = tiny_verifier()
    row = own_rows(verifier, 1)[0]
    objective = objective_of(name, verifier, [row], soft=1.0)
    hidden = objective._clean.of(row).hidden  # type: ignore[union-attr, operator]
    first = len(row.prompt_ids)

    def perfect(*arguments: object) -> object:
        origins = torch.arange(first, first + 8)
        if name == "fastmtp":
            origins = torch.arange(first - 1, len(hidden) - 2)
            return iter([hidden[(origins + k).clamp(max=len(hidden) - 1)][None] for k in (1, 2, 3)])
        blocks = arguments[1]
        assert isinstance(blocks, Blocks)
        index = blocks.anchors[:, :, None] + torch.tensor(list(objective.plan.guesses)) - 1
        return hidden[index.clamp(max=len(hidden) - 1)]

    objective.states = perfect  # type: ignore[assignment]
    with torch.no_grad():
        judged = objective([row], torch.Generator().manual_seed(0))
    assert float(judged.loss) < 1e-12
    assert judged.score.accuracy == 1.0


@pytest.mark.parametrize("name", METHODS)
def test_a_trained_drafter_never_changes_the_output(
    name: str, verifier: LeanVerifier, rows: list[Row]
) -> None:
    objective = shaken(objective_of(name, verifier, rows))
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    for k in (1, 2, 5):
        answers = generate(verifier, requests, drafter=objective.drafter(), k=k, batch=3)
        assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}


@pytest.mark.parametrize("name", METHODS)
def test_requests_in_a_batch_draft_as_they_do_alone(
    name: str, verifier: LeanVerifier, rows: list[Row]
) -> None:
    objective = objective_of(name, verifier, rows)
    fit(objective, rows, 5)
    requests = [Request(r.id, r.prompt_ids, 8 + 4 * i) for i, r in enumerate(rows)]
    alone = {  # the last round is cut to the room left, a batch's widest decides how
        a.id: counts(a)[:-1]
        for r in requests
        for a in generate(verifier, [r], drafter=objective.drafter(), k=3)
    }
    together = generate(verifier, requests, drafter=objective.drafter(), k=3, batch=3)
    assert {a.id: counts(a)[:-1] for a in together} == alone


@pytest.mark.parametrize("name", METHODS)
def test_training_leaves_the_verifier_as_it_was(name: str, rows: list[Row]) -> None:
    """T27: adapter attached but off is bit-equal, and no weight has moved."""
    verifier = tiny_verifier()
    ids = torch.tensor([rows[0].prompt_ids + rows[0].continuation_ids])

    def logits() -> torch.Tensor:
        cache = verifier.new_cache(1, ids.shape[1])
        out = verifier.run(Phase.PREFILL, chain(ids, cache.lengths), cache, Ledger()).logits
        assert out is not None
        return out

    weights = [p.clone() for block in verifier.blocks for p in block.state_dict().values()]
    before = logits()
    objective = objective_of(name, verifier, rows)
    fit(objective, rows, 3)
    list(generate(verifier, [Request("a", rows[0].prompt_ids, 8)], drafter=objective.drafter()))
    assert torch.equal(before, logits())
    after = [p for block in verifier.blocks for p in block.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(weights, after, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_a_padded_batch_has_the_loss_of_its_rows(
    name: str, verifier: LeanVerifier, rows: list[Row]
) -> None:
    """T19: texts of unequal length together, against one at a time."""
    cut = [
        dataclasses.replace(r, id=f"c{i}", continuation_ids=r.continuation_ids[: 6 + 2 * i])
        for i, r in enumerate(rows)
    ]
    settings = {"anchors": 64} if "bd" in name else {}
    objective = shaken(objective_of(name, verifier, rows, **settings)).eval()
    with torch.no_grad():
        together = objective(cut, torch.Generator().manual_seed(0))
        alone = [objective([r], torch.Generator().manual_seed(0)) for r in cut]
    score = alone[0].score
    for judged in alone[1:]:
        score = score + judged.score
    assert together.score.counted.tolist() == score.counted.tolist()
    assert together.score.survived.tolist() == score.survived.tolist()


@pytest.mark.parametrize("name", METHODS)
def test_what_is_saved_is_loaded(
    name: str, verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    settings = {"vocabulary": 24} if name == "fastmtp" else {}
    objective = objective_of(name, verifier, rows, **settings)
    fit(objective, rows, 5)
    objective.save(tmp_path)
    again = DRAFTERS[objective.name].load(tmp_path, verifier, OURS)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    rounds = [
        [counts(a) for a in generate(verifier, requests, drafter=drafter, k=3)]
        for drafter in (objective.drafter(), again)
    ]
    assert rounds[0] == rounds[1]


@pytest.mark.parametrize("name", METHODS)
def test_a_drafter_of_another_verifier_is_refused_by_name(
    name: str, verifier: LeanVerifier, rows: list[Row], tmp_path: Path
) -> None:
    objective = objective_of(name, verifier, rows)
    drafter = objective.drafter()
    drafter.verifier = OURS  # type: ignore[attr-defined]
    drafter.save(tmp_path)  # type: ignore[attr-defined]
    kind = DRAFTERS[VARIANTS[name][0]]
    kind.load(tmp_path, verifier, dataclasses.replace(OURS, name="./copy"))
    other = Identity("another", "d" * 64, "b" * 64, "c" * 64)
    line = r"verifier 'tiny' \(weights aaaaaaaa\), but this verifier is 'another' \(weights dddd"
    with pytest.raises(DrafterError, match=line):
        kind.load(tmp_path, verifier, other)
    wider = tiny_verifier(hidden=48)
    with pytest.raises(DrafterError, match="trained for another model"):
        kind.load(tmp_path, wider, OURS)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_folder_that_holds_something_else_is_refused(
    name: str, verifier: LeanVerifier, tmp_path: Path
) -> None:
    kind = DRAFTERS[name]
    with pytest.raises(DrafterError, match=r"no drafter\.json; give a folder written by 'train'"):
        kind.load(tmp_path, verifier)
    (tmp_path / "drafter.json").write_text('{"drafter": "other", "verifier": null, "settings": {}}')
    with pytest.raises(DrafterError, match=f"holds a 'other' drafter, not '{kind.name}'"):
        kind.load(tmp_path, verifier)
    (tmp_path / "drafter.json").write_text('{"drafter": "ot')
    with pytest.raises(DrafterError, match="not a drafter's card"):
        kind.load(tmp_path, verifier)
    card = f'{{"drafter": "{kind.name}", "verifier": null, "settings": {{}}}}'
    (tmp_path / "drafter.json").write_text(card)
    with pytest.raises(DrafterError, match=r"setting '.*' is missing"):
        kind.load(tmp_path, verifier)


@pytest.mark.parametrize("name", ["peft-bd", "peft-bd-gated", "fastmtp"])
def test_training_in_half_precision_keeps_whole_weights(name: str) -> None:
    """The frozen passes run in bf16; weights and drafter stay fp32, the loss hardly moves."""
    verifier = tiny_verifier(dtype=torch.float32)
    rows = own_rows(verifier, 2)
    whole, half = (objective_of(name, verifier, rows, teacher=t) for t in (None, torch.bfloat16))
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    losses = [o.eval()(rows, torch.Generator().manual_seed(0)).loss for o in (whole, half)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=0.05)
    assert losses[0].item() != losses[1].item()
    losses[1].backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in half.parameters())
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    answers = generate(verifier, requests, drafter=half.drafter(), k=3)
    assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
