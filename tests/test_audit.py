"""The audit tells rounding from a bug, and says so when it proved nothing (T25, T28)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from breakeven.core import Draft, Phase
from breakeven.decode.round import padded_chain
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.scripted import FlipAt, Oracle, RandomDrafter
from breakeven.measure.audit import Audit, Finding, Level, exit_code, judge
from breakeven.measure.configuration import Configuration
from breakeven.measure.control import fixed_width_control
from breakeven.measure.divergence import Kind, Output, first_difference
from breakeven.measure.inspection import inspect, of_completion
from breakeven.measure.rescore import Rescorer, rescore
from breakeven.measure.tolerance import tolerance
from breakeven.measure.trial import Method
from breakeven.measure.wording import summary_line
from breakeven.verifier.interface import Output as PassOutput
from breakeven.verifier.interface import Verifier
from breakeven.verifier.rows import Rows
from measuring import VOCAB, Row, Spelling, Wrapped, decoding, one_for_all, prompts, script_of
from tiny import tiny_verifier

K = 4
PLACE = 14  # the absolute position whose next token is spoilt
A, B = 5, 6  # the two tokens that compete there
TOKENS = 24


class Spoilt(Wrapped):
    """Spoils the logits after position :data:`PLACE`, by the width of the pass.

    Position and width travel behind the hidden state, so that whoever calls the head gets the
    logits that belong to the row.
    """

    def __init__(self, spoil: Callable[[Tensor, bool], None]) -> None:
        super().__init__(tiny_verifier(vocab=VOCAB, dtype=torch.float32))
        self.spoil = spoil

    def body(self, rows: Rows, *rest: Any, **named: Any) -> PassOutput:
        out = super().body(rows, *rest, **named)
        width = torch.full_like(rows.positions, rows.width)
        marks = torch.stack((rows.positions, width), dim=-1).to(out.hidden.dtype)
        return PassOutput(torch.cat((out.hidden, marks), dim=-1), taps=out.taps)

    def head(self, hidden: Tensor) -> Tensor:
        logits = self.inner.head(hidden[..., :-2])
        for row in (hidden[..., -2] == PLACE).nonzero():
            index = tuple(row.tolist())
            self.spoil(logits[index], 2 <= int(hidden[index][-1]) <= K + 1)
        return logits


def planted_tie(logits: Tensor, verifying: bool) -> None:
    """Two level tokens; the wide pass rounds the other way."""
    logits.fill_(-1.0)
    logits[A], logits[B] = 0.5, 0.5 + (1e-7 if verifying else -1e-7)


def planted_bug(logits: Tensor, verifying: bool) -> None:
    """The wide pass is simply wrong."""
    logits.fill_(-1.0)
    logits[A], logits[B] = 0.5, (0.6 if verifying else 0.4)


class Misplaced(Wrapped):
    """A real kind of bug: verify passes run one position too late."""

    def body(self, rows: Rows, *rest: Any, **named: Any) -> PassOutput:
        if 2 <= rows.width <= K + 1:
            rows = replace(rows, positions=rows.positions + 1)
        return super().body(rows, *rest, **named)


class FreeFirst(Drafter):
    """The verifier's own next token from a pass of one row, then wrong guesses."""

    name = "free-first"

    def propose(self, context: Context, k: int) -> list[Draft]:
        rows = padded_chain(context, [tokens[-1:] for tokens in context.tokens])
        out = context.verifier.run(Phase.DRAFT, rows, context.cache, context.ledger)
        assert out.logits is not None
        first = out.logits[:, 0].argmax(-1).tolist()
        return [Draft((token, *[0] * (k - 1)), free=1) for token in first]


class Silent(Drafter):
    """Never proposes anything."""

    name = "silent"

    def propose(self, context: Context, k: int) -> list[Draft]:
        return [Draft(())] * context.batch


def rows(count: int = 3) -> list[Row]:
    return [replace(row, prompt_ids=(*row.prompt_ids, 1, 2, 3)) for row in prompts(count)]


def audited(
    verifier: Verifier, drafter: Drafter | None = None, level: Level = Level.L2, name: str = "x"
) -> Audit:
    make = one_for_all(drafter or RandomDrafter(VOCAB))
    machine = decoding(verifier, TOKENS)
    [audit] = inspect(machine, rows(), [Configuration(name, K)], make, level=level)
    return audit


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("name", ["random", "oracle", "anti-oracle"])
def test_a_sound_decoder_is_equal_for_good_and_bad_drafters(name: str, level: Level) -> None:
    audit = audited(tiny_verifier(vocab=VOCAB), level=level, name=name)
    assert audit.verdict is Finding.EQUAL
    assert audit.drafted > 0
    if name != "random":
        assert audit.accepted == (audit.drafted if name == "oracle" else 0)
    assert exit_code([audit]) == 0


@pytest.mark.parametrize("level", list(Level))
def test_a_planted_tie_is_a_near_tie_with_its_gap(level: Level) -> None:
    audit = audited(Spoilt(planted_tie), level=level)
    assert audit.verdict is Finding.NEAR_TIE
    assert audit.differing == 3
    for divergence in audit.divergences:
        assert (divergence.expected, divergence.got) == (A, B)
        assert divergence.gap == pytest.approx(1e-7, rel=0.5)
    assert exit_code([audit]) == 0
    assert "near-tie" in summary_line(audit)


@pytest.mark.parametrize("level", list(Level))
def test_a_planted_bug_is_a_bug(level: Level) -> None:
    audit = audited(Spoilt(planted_bug), level=level)
    assert audit.verdict is Finding.BUG
    assert exit_code([audit]) == 1
    assert all(d.gap == pytest.approx(0.1) for d in audit.bugs)
    assert "bug" in summary_line(audit)


def test_a_bug_that_flips_no_token_shows_in_the_control() -> None:
    verifier = Misplaced(tiny_verifier(vocab=VOCAB))
    assert audited(verifier, level=Level.L0).verdict is Finding.EQUAL  # nobody can tell
    audit = audited(verifier, level=Level.L1)
    assert audit.differing == 0
    assert audit.verdict is Finding.BUG
    assert "padding a pass to 5 rows" in summary_line(audit)


def test_the_gap_is_judged_by_the_precision() -> None:
    # the same gap of 1e-7 is rounding in fp32 and a bug in fp64
    assert tolerance(torch.float64, 0.5) < 1e-7 < tolerance(torch.float32, 0.5)
    assert tolerance(torch.bfloat16, 20.0) == 0.25
    assert tolerance(torch.bfloat16, 10.0) == 0.125
    assert tolerance(torch.float16, 20.0) == 0.03125


def test_noise_of_the_control_widens_the_bound_but_not_beyond_reason() -> None:
    assert tolerance(torch.float32, 1.0, noise=1e-5) == 1e-3
    assert tolerance(torch.float32, 1.0, noise=2e-3) == 4e-3
    assert tolerance(torch.float32, 1.0, noise=50.0) == 1e-2


def test_nothing_drafted_is_inconclusive_and_never_equal() -> None:
    audit = audited(tiny_verifier(vocab=VOCAB), Silent())
    assert audit.drafted == 0
    assert audit.differing == 0
    assert audit.verdict is Finding.INCONCLUSIVE
    assert exit_code([audit]) == 2
    assert "0 tokens drafted" in summary_line(audit)


def test_a_bug_outweighs_that_nothing_was_drafted() -> None:
    plain = {"p": Output("p", (1, 2), (3, 4), "length")}
    own = {"p": Output("p", (1, 2), (3, 4, 5), "length")}
    rescorer = Rescorer(tiny_verifier(vocab=VOCAB))
    audit = judge("x-k2", plain, own, rescorer)
    assert audit.verdict is Finding.BUG
    assert exit_code([audit, audited(tiny_verifier(vocab=VOCAB), Silent())]) == 1


@pytest.mark.parametrize("drafter", [Silent(), RandomDrafter(VOCAB), None])
def test_forwards_counted_by_a_hook_equal_the_ledgers(drafter: Drafter | None) -> None:
    verifier = Wrapped(tiny_verifier(vocab=VOCAB))
    machine = decoding(verifier, TOKENS)
    _, ledger = machine.run(Method("x", drafter, K), rows()[0])
    assert verifier.forwards == len(ledger.passes)
    if drafter is not None:
        assert len(ledger.rounds) == verifier.forwards - 1  # a verify pass each, and prefill


@pytest.mark.parametrize("change", ["early", "late", "finish"])
def test_an_output_that_ends_elsewhere_is_a_bug(change: str) -> None:
    machine, row = decoding(tokens=TOKENS), rows()[0]
    plain = of_completion(row, machine.run(Method(), row)[0])
    own = {
        "early": replace(plain, tokens=plain.tokens[:-2]),
        "late": replace(plain, tokens=(*plain.tokens, 1)),
        "finish": replace(plain, finish="stop"),
    }[change]
    audit = judge("x-k2", {row.id: plain}, {row.id: own}, Rescorer(machine.verifier))
    assert audit.verdict is Finding.BUG
    assert audit.bugs[0].gap is None


def test_plain_decoding_can_be_the_one_that_is_wrong() -> None:
    machine, row = decoding(tokens=TOKENS), rows()[0]
    true = of_completion(row, machine.run(Method(), row)[0])
    wrong = replace(true, tokens=(*true.tokens[:-1], (true.tokens[-1] + 1) % VOCAB))
    audit = judge("x-k2", {row.id: wrong}, {row.id: true}, Rescorer(machine.verifier))
    assert audit.verdict is Finding.BUG


def test_the_control_sees_kernels_and_nothing_else() -> None:
    sound = controlled(tiny_verifier(vocab=VOCAB))
    assert sound.flips == ()
    assert sound.sound
    assert sound.noise < 1e-12
    assert sound.tokens == 3 * (TOKENS - 1)
    tied = controlled(Spoilt(planted_tie))
    assert [flip[2] for flip in tied.flips] == [B] * 3


def controlled(verifier: Verifier) -> Any:
    machine = decoding(verifier, TOKENS)
    outputs = {row.id: (row.prompt_ids, script_of(machine, [row])) for row in rows()}
    walked = {name: (ids, next(iter(script.values()))) for name, (ids, script) in outputs.items()}
    return fixed_width_control(verifier, walked, K + 1)


def test_the_control_has_the_width_of_the_real_verify_passes() -> None:
    verifier = tiny_verifier(vocab=VOCAB)
    wide, narrow = audited(verifier), audited(verifier, FreeFirst())
    assert (wide.verdict, narrow.verdict) == (Finding.EQUAL, Finding.EQUAL)
    assert wide.control is not None
    assert narrow.control is not None
    assert (wide.control.width, narrow.control.width) == (K + 1, K)
    assert audited(verifier, Silent()).control is None  # its passes have one row
    assert audited(verifier, level=Level.L0).control is None


def test_every_token_of_a_plain_answer_is_its_own_best() -> None:
    machine, row = decoding(tokens=TOKENS), rows()[0]
    tokens = machine.run(Method(), row)[0].tokens
    scores = rescore(machine.verifier, row.prompt_ids, tokens)
    assert list(scores.best) == tokens
    assert max(scores.gap) == 0.0
    assert min(scores.margin) > 0.0


def test_the_entry_shows_texts_context_and_margins() -> None:
    audit = audited(Spoilt(planted_tie))
    entry = audit.row(Spelling())
    assert json.loads(json.dumps(entry)) == entry
    first = entry["divergences"][0]
    assert (first["class"], first["expected_text"], first["got_text"]) == ("near-tie", "t5", "t6")
    assert first["context"].startswith("t")
    counts, edges = entry["margins"]["counts"], entry["margins"]["edges"]
    assert sum(counts) == entry["tokens"] == audit.tokens
    assert len(edges) == len(counts) + 1
    assert entry["control"]["flips"]


def test_a_rejection_was_exercised() -> None:
    machine = decoding(tokens=TOKENS)
    script = script_of(machine, rows())
    flip, oracle = (
        audited(machine.verifier, d) for d in (FlipAt(script, VOCAB, 1), Oracle(script, VOCAB))
    )
    assert flip.accepted < flip.drafted
    assert oracle.accepted == oracle.drafted


def test_first_difference() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([], [1]) == 0


def test_listed_divergences_put_bugs_first() -> None:
    audit = audited(Spoilt(planted_bug))
    listed = audit.row()["divergences"]
    assert listed[0]["class"] == str(Kind.BUG)
    assert len(listed) <= 50


def test_trajectories_stand_beside_their_ceiling() -> None:
    """The planted tie flips in padded plain decoding as well, so nothing is lost to drafting."""
    tied = audited(Spoilt(planted_tie))
    found = tied.trajectories
    assert found.whole == found.requests - tied.differing
    assert found.parting is not None
    assert tied.control is not None
    assert found.ceiling == found.requests - len({flip[0] for flip in tied.control.flips})
    assert found.ceiling < found.requests
    assert tied.row()["trajectories"]["ceiling"] == found.ceiling
    alone = audited(tiny_verifier(vocab=VOCAB), level=Level.L0).trajectories
    assert (alone.whole, alone.parting, alone.ceiling) == (alone.requests, None, None)
