"""Passes of some layers, natively and in PyTorch; drafting with them; which layers can go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from breakeven.cli.app import run
from breakeven.core import Phase
from breakeven.cost.ledger import Ledger
from breakeven.data.artifact import write_artifact
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.drafters.layer_skip import LayerSkip
from breakeven.drafters.registry import create
from breakeven.errors import DrafterError, ModelError
from breakeven.train.layer_search import Agreement, Prices, exits, skippable
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.identity import Identity
from breakeven.verifier.interface import Part
from breakeven.verifier.rows import chain
from test_artifact import contract
from tiny import FAMILIES, tiny_config, tiny_verifier
from tiny_chat import tiny_loaded
from training import own_rows

OURS = Identity("tiny", "a" * 64, "b" * 64, "c" * 64)
TEXT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def hidden_of(verifier: LeanVerifier, part: Part | None, text: torch.Tensor = TEXT) -> torch.Tensor:
    cache = verifier.new_cache(1, 16)
    rows = chain(text, cache.lengths)
    return verifier.run(Phase.DRAFT, rows, cache, Ledger(), logits="none", part=part).hidden


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_two_parts_make_the_whole(family: str, native: bool) -> None:
    """The exit state of the first layers, handed to the rest, gives the bits of one pass."""
    config = tiny_config(family, num_hidden_layers=4)
    verifier = LeanVerifier.from_config(config, native=native)
    cache = verifier.new_cache(1, 16)
    rows = chain(TEXT, cache.lengths)
    first = verifier.run(
        Phase.DRAFT, rows, cache, Ledger(), logits="none", part=Part((0, 1)), taps=(1,)
    )
    state = first.taps[1]
    rest = verifier.run(
        Phase.VERIFY, rows, cache, Ledger(), logits="none", part=Part((2, 3), state)
    ).hidden
    whole = verifier.new_cache(1, 16)
    expected = verifier.run(Phase.PLAIN, rows, whole, Ledger(), logits="none").hidden
    assert torch.equal(rest, expected)
    assert torch.equal(cache.keys, whole.keys)
    assert torch.equal(cache.values, whole.values)
    assert torch.equal(first.taps[1], state)  # the second pass did not write into it


@pytest.mark.parametrize("skip", [(1,), (0, 2)])
def test_native_and_pytorch_skip_the_same(skip: tuple[int, ...]) -> None:
    config = tiny_config(num_hidden_layers=4)
    left = Part(tuple(i for i in range(4) if i not in skip))
    native, reference = (
        hidden_of(LeanVerifier.from_config(config, native=n), left) for n in (True, False)
    )
    torch.testing.assert_close(native, reference, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(native, hidden_of(LeanVerifier.from_config(config), None))


@pytest.mark.parametrize("batch", [1, 3])
def test_drafts_of_fewer_layers_leave_the_output_alone(batch: int) -> None:
    verifier = tiny_verifier(layers=4)
    rows = own_rows(verifier, 4)
    requests = [Request(r.id, r.prompt_ids, 16) for r in rows]
    for skip in ((), (1,), (0, 1, 2)):
        ledger = Ledger()
        answers = generate(
            verifier, requests, drafter=LayerSkip(4, skip), k=3, batch=batch, ledger=ledger
        )
        assert {a.id: tuple(a.tokens) for a in answers} == {r.id: r.continuation_ids for r in rows}
        if not skip:  # the verifier itself: nothing is ever rejected
            assert all(r.accepted == r.drafted for r in ledger.rounds)


def test_agreement_is_what_decoding_accepts() -> None:
    """Teacher-forced at every place, against the first draft from every root."""
    verifier = tiny_verifier(layers=4)
    [row] = own_rows(verifier, 1, new_tokens=12)
    text = [*row.prompt_ids, *row.continuation_ids]
    part = Part((0, 1, 3))
    right = []
    for root in range(len(row.prompt_ids) - 1, len(text) - 1):
        cache = verifier.new_cache(1, len(text) + 1)
        if root:
            layout = chain(torch.tensor([text[:root]]), cache.lengths)
            verifier.run(Phase.PREFILL, layout, cache, Ledger())
            cache.commit(root)
        layout = chain(torch.tensor([[text[root]]]), cache.lengths)
        out = verifier.run(Phase.DRAFT, layout, cache, Ledger(), logits="choices", part=part)
        assert out.choices is not None
        right.append(int(out.choices[0, 0]) == text[root + 1])
    assert Agreement(verifier, [row]).of(part) == pytest.approx(sum(right) / len(right))
    assert Agreement(verifier, [row]).of(Part((0, 1, 2, 3))) == 1.0


def test_the_search_drops_a_layer_that_does_nothing() -> None:
    verifier = tiny_verifier(layers=4)
    for group in ("o", "down"):
        verifier.blocks[2].linears[group].weight.zero_()  # type: ignore[operator, union-attr]
    prices = Prices(0.22, 0.12, [1.05, 1.1])
    first, second = skippable(verifier, own_rows(verifier, 2), prices, most=2)
    assert first.skip == (2,)
    assert first.agreement == 1.0
    assert set(second.skip) > {2}
    assert second.agreement <= 1.0


def test_every_exit_is_judged_and_the_last_agrees_most() -> None:
    verifier = tiny_verifier(layers=4)
    verifier.blocks[3].linears["o"].weight.zero_()  # type: ignore[operator, union-attr]
    verifier.blocks[3].linears["down"].weight.zero_()  # type: ignore[operator, union-attr]
    found = exits(verifier, own_rows(verifier, 2), Prices(0.22, 0.12, [1.05, 1.1]))
    assert [c.skip for c in found] == [(1, 2, 3), (2, 3), (3,)]
    assert found[-1].agreement == 1.0


def test_prices_are_shares_of_a_plain_step() -> None:
    prices = Prices.measure(tiny_verifier(layers=4), rounds=3)
    assert prices.layer * 4 + prices.head == pytest.approx(1.0, abs=1.0)
    assert len(prices.verify) == 8
    assert min(prices.verify) > 0


@pytest.mark.parametrize("drafter", ["layer-skip", "early-exit"])
def test_the_verb_writes_a_drafter_and_says_whether_it_can_pay(
    drafter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded = tiny_loaded()
    monkeypatch.setattr("breakeven.verifier.load.load_verifier", lambda name, **_: loaded)
    rows = own_rows(loaded.verifier, 3)  # type: ignore[arg-type]
    parts = {"train": rows, "validation": rows[:1], "test": []}
    data = tmp_path / "data"
    write_artifact(data, parts, contract({name: len(part) for name, part in parts.items()}))
    out = tmp_path / "out"
    words = ["layers", "-d", drafter, "-a", str(data), "--most", "1", "-o", str(out)]
    assert run([*words, "--dry-run"]) == 0
    tried = 2 if drafter == "layer-skip" else 1
    assert f"would try {tried} sets of layers to leave out on 3 texts" in capsys.readouterr().out
    assert run([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] > 0
    assert not out.exists()
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert f"{drafter} can" in shown
    assert create(drafter, loaded, out).name == drafter
    assert run(words) == 2
    assert "exists; give another --out" in capsys.readouterr().err
    assert run([*words, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drafter"] == drafter


def test_the_folder_is_read_again_and_checked(tmp_path: Path) -> None:
    verifier = tiny_verifier(layers=4)
    LayerSkip(4, (2, 1), OURS).save(tmp_path)
    assert LayerSkip.load(tmp_path, verifier, OURS).skip == (1, 2)
    with pytest.raises(DrafterError, match="give some of the layers 0 to 3"):
        LayerSkip(4, (4,))
    with pytest.raises(DrafterError, match="give some of the layers 0 to 3"):
        LayerSkip(4, range(4))
    LayerSkip(9, (8,), OURS).save(tmp_path)
    with pytest.raises(DrafterError, match="give some of the layers 0 to 3"):
        LayerSkip.load(tmp_path, verifier, OURS)


def test_the_fallback_has_no_parts() -> None:
    from breakeven.verifier.fallback import TransformersVerifier

    verifier = object.__new__(TransformersVerifier)
    verifier.name = "other"
    with pytest.raises(ModelError, match="passes of some layers need the lean decoder"):
        verifier.body(chain(TEXT, torch.tensor([0])), None, part=Part((0,)))  # type: ignore[arg-type]
