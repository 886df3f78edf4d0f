"""The Hugging Face loop and the engine: two implementations of one drafter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.core import Phase, Verified
from breakeven.cost.ledger import Ledger
from breakeven.decode.generate import generate
from breakeven.decode.request import Completion, Request
from breakeven.drafters.peft_bd import PeftBD
from breakeven.errors import DrafterError
from breakeven.paper.loop import DiagnosticLoop
from breakeven.verifier.decoder import LeanVerifier
from breakeven.verifier.load import load_verifier
from tiny_chat import chat_model
from training import fit, objective_of, own_rows, shaken

pytest.importorskip("peft")
NEW = 24
SHAPES = ("peft-bd", "peft-bd, rooted", "peft-bd, shifted")


class Watched(PeftBD):
    """Remembers what was drafted and accepted."""

    def observe(self, context: Any, verified: Any, hidden: Any) -> None:
        self.seen.append(verified[0])
        super().observe(context, verified, hidden)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[Verified] = []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("paper") / "model")


@pytest.fixture(scope="module")
def verifier(model: Path) -> LeanVerifier:
    found = load_verifier(str(model), dtype=torch.float64).verifier
    assert isinstance(found, LeanVerifier)
    return found


def trained(shape: str, verifier: LeanVerifier, folder: Path, *, steps: int = 0) -> Path:
    """An adapter whose every weight matters, trained for ``steps`` to draft something right."""
    rows = own_rows(verifier, 2, new_tokens=NEW)
    objective = shaken(objective_of(shape, verifier, rows), 0.02)
    if steps:
        fit(objective, rows, steps)
    objective.save(folder, torch.float64)
    return folder


@pytest.mark.parametrize("shape", SHAPES)
def test_both_paths_draft_the_same_tokens_in_every_round(
    shape: str, model: Path, verifier: LeanVerifier, tmp_path: Path
) -> None:
    folder = trained(shape, verifier, tmp_path, steps=60)
    loop = DiagnosticLoop.load(model, {"x": folder}, dtype=torch.float64)
    accepted = 0
    for row in own_rows(verifier, 3, new_tokens=NEW):
        request = Request(row.id, row.prompt_ids, NEW)
        theirs, ledger, drafts = watched_loop(loop, request)
        drafter = Watched.load(folder, verifier)
        [ours] = generate(verifier, [request], drafter=drafter, k=drafter.plan.most)
        assert theirs.tokens == ours.tokens
        assert drafts == [v.draft.tokens for v in drafter.seen]
        assert [r.accepted for r in ledger.rounds] == [v.accepted for v in drafter.seen]
        assert [r.committed for r in ledger.rounds] == [r.committed for r in ours.rounds]
        accepted += ledger.accepted
    assert accepted > 0, "a test of drafts that are never right shows little"


def watched_loop(
    loop: DiagnosticLoop, request: Request
) -> tuple[Completion, Ledger, list[tuple[int, ...]]]:
    """The loop's answer and what it had verified."""
    seen: list[tuple[int, ...]] = []
    verify = loop._verify

    def spy(state: Any, tokens: Any, phase: Phase) -> list[int]:
        if phase is not Phase.PREFILL:
            seen.append(tuple(tokens[1:]))
        return verify(state, tokens, phase)

    loop._verify = spy  # type: ignore[method-assign]
    answer, ledger = loop.decode(request, "x")
    loop._verify = verify  # type: ignore[method-assign]
    return answer, ledger, seen


def test_plain_decoding_with_an_adapter_aboard_is_the_verifiers_own(
    model: Path, verifier: LeanVerifier, tmp_path: Path
) -> None:
    folder = trained("peft-bd", verifier, tmp_path)
    loop = DiagnosticLoop.load(model, {"x": folder}, dtype=torch.float64)
    bare = DiagnosticLoop.load(model, {}, dtype=torch.float64)
    for row in own_rows(verifier, 2, new_tokens=NEW):
        request = Request(row.id, row.prompt_ids, NEW)
        answers = [path.decode(request)[0].tokens for path in (loop, bare)]
        assert answers == [list(row.continuation_ids)] * 2


def test_an_answer_of_one_token_and_a_prompt_of_one(
    model: Path, verifier: LeanVerifier, tmp_path: Path
) -> None:
    folder = trained("peft-bd, rooted", verifier, tmp_path)
    loop = DiagnosticLoop.load(model, {"x": folder}, dtype=torch.float64)
    answer, ledger = loop.decode(Request("one", (5, 6), 1), "x")
    assert len(answer.tokens) == 1
    assert ledger.rounds == []
    answer, ledger = loop.decode(Request("short", (5,), 6), "x")
    plain, _ = loop.decode(Request("short", (5,), 6))
    assert answer.tokens == plain.tokens
    assert ledger.committed == 5


def test_two_adapters_take_turns(model: Path, verifier: LeanVerifier, tmp_path: Path) -> None:
    folders = {
        name: trained(shape, verifier, tmp_path / name)
        for name, shape in (("a", "peft-bd"), ("b", "peft-bd, rooted"))
    }
    loop = DiagnosticLoop.load(model, folders, dtype=torch.float64)
    request = Request("r", (5, 6, 7), NEW)
    for name, folder in folders.items():
        alone = DiagnosticLoop.load(model, {name: folder}, dtype=torch.float64)
        rounds = [path.decode(request, name)[1].rounds for path in (loop, alone)]
        assert rounds[0] == rounds[1]


def test_the_answer_ends_where_the_engines_does(
    model: Path, verifier: LeanVerifier, tmp_path: Path
) -> None:
    row = own_rows(verifier, 1, new_tokens=NEW)[0]
    eos = frozenset({row.continuation_ids[5]})
    folder = trained("peft-bd", verifier, tmp_path)
    loop = DiagnosticLoop.load(model, {"x": folder}, dtype=torch.float64, eos=eos)
    answer, _ = loop.decode(Request(row.id, row.prompt_ids, NEW, eos), "x")
    [ours] = generate(verifier, [Request(row.id, row.prompt_ids, NEW, eos)])
    assert (answer.tokens, answer.finish) == (ours.tokens, ours.finish)


def test_a_drafter_of_another_kind_is_refused_in_one_line(
    model: Path, verifier: LeanVerifier, tmp_path: Path
) -> None:
    folder = trained("peft-bd-gated", verifier, tmp_path)
    with pytest.raises(DrafterError, match="holds a 'peft-bd-gated' drafter, not 'peft-bd'"):
        DiagnosticLoop.load(model, {"x": folder}, dtype=torch.float64)
