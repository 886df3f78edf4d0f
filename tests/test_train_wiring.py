"""Teacher-forced against deployed survival: a gap beyond tolerance and noise is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from breakeven.train.acceptance import Acceptance
from breakeven.train.feed import Feed
from breakeven.train.journal import METRICS_FILE, entries
from breakeven.train.loop import Trainer
from breakeven.train.objective import Objective
from breakeven.train.processes import Processes
from breakeven.train.recipe import LoopSettings
from breakeven.train.validation import Validated, Validation
from breakeven.train.wiring import Wiring, walk
from tiny import tiny_verifier
from training import METHODS, decoded, fit, objective_of, own_rows


def decoding(rounds: int) -> Acceptance:
    return Acceptance((rounds,), (0,), ((2 * rounds, rounds, rounds),))


def test_more_rounds_than_foretold_are_a_fault() -> None:
    walks = [(100, 40), (120, 60)]
    healthy = Wiring.of(walks, decoding(104))
    assert not healthy.fault
    assert "as it should be" in str(healthy)
    assert healthy.length == 2.2
    broken = Wiring.of(walks, decoding(150))
    assert broken.fault
    assert "a wiring fault; compare the drafter's logits" in str(broken)
    assert "\n" not in str(broken)
    assert not Wiring.of(walks, decoding(80)).fault  # better than foretold accuses nobody


def test_one_guess_in_a_short_text_accuses_nobody() -> None:
    assert not Wiring.of([(7, 3)], decoding(5)).fault


@given(
    leading=st.lists(st.integers(0, 5), max_size=30),
    tokens=st.integers(1, 40),
    free=st.integers(0, 1),
    k=st.integers(1, 6),
)
def test_a_walk_commits_everything_in_rounds_of_at_most_k_plus_one(
    leading: list[int], tokens: int, free: int, k: int
) -> None:
    committed, rounds = walk(leading, tokens, free=free, k=k)
    assert committed == tokens - 1
    assert rounds <= committed <= rounds * (k + 1)


@pytest.mark.parametrize("name", METHODS)
def test_decoding_has_the_rounds_that_teacher_forcing_foretells(name: str) -> None:
    """Exactly, text by text, in float64, for half-trained drafters that are often wrong."""
    verifier = tiny_verifier()
    rows = own_rows(verifier, 4, new_tokens=32)
    objective = objective_of(name, verifier, rows)
    fit(objective, rows[:3], 15)
    objective.eval()
    real = decoded(objective, verifier, rows)
    for row, (committed, rounds, _) in zip(rows, real.texts, strict=True):
        foretold = walk(objective.leading(row), 32, free=objective.free, k=objective.drafts)
        assert foretold == (committed, rounds)
    assert real.length > 1.0 + objective.free or "late" in name


class Swapped(Objective):
    """Decodes with a drafter that has seen other weights: what a wiring fault looks like."""

    def __init__(self, inner: Objective, deployed: Objective) -> None:
        torch.nn.Module.__init__(self)
        self.inner = inner
        self.name, self.drafts = inner.name, inner.drafts
        self._device_type, self._half = inner._device_type, inner._half
        self._other = [deployed]  # not a sub-module

    def labels(self, row):  # type: ignore[no-untyped-def]
        return self.inner.labels(row)

    def forward(self, rows, generator):  # type: ignore[no-untyped-def]
        return self.inner(rows, generator)

    def judge(self, rows, generator):  # type: ignore[no-untyped-def]
        return self.inner.judge(rows, generator)

    def right(self, row):  # type: ignore[no-untyped-def]
        return self.inner.right(row)

    def drafter(self):  # type: ignore[no-untyped-def]
        return self._other[0].drafter()

    def save(self, folder, dtype=None):  # type: ignore[no-untyped-def]
        self.inner.save(folder, dtype)


def test_a_run_says_that_its_drafter_is_wired_wrongly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 4, new_tokens=32)
    good = objective_of("fastmtp", verifier, rows)
    fit(good, rows, 60)
    bad = Swapped(good, objective_of("fastmtp", verifier, rows, start="random"))
    outcomes = {}
    for name, objective in (("good", good), ("bad", bad)):
        trainer = Trainer(
            objective,
            Feed(rows, 1, 0),
            LoopSettings(steps=1, rows_per_step=1, lr=1e-6, trackers=()),
            Validation(rows, lambda o, some, _: decoded(o, verifier, some)),
            tmp_path / name,
        )
        outcomes[name] = trainer.run().validated.wiring
        shown = capsys.readouterr().err
        assert ("warning: step 1: decoding took" in shown) == (name == "bad")
        logged = entries(tmp_path / name / METRICS_FILE)[-1]
        assert logged["wiring_fault"] == (name == "bad")
        assert logged["foretold_acceptance_length"] == outcomes[name].length
    assert outcomes["bad"].foretold == outcomes["good"].foretold
    assert outcomes["good"].decoded == outcomes["good"].foretold


def test_partly_shown_targets_have_both_readings_of_target_accuracy() -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    objective = objective_of("peft-bd", verifier, rows, mask_ratio=(0.3, 1.0), masks=8)
    validation = Validation(rows, lambda o, some, _: decoded(o, verifier, some))
    found = validation.run(objective, 0, Processes())
    assert found.masked is not None
    assert found.masked.labels < found.masked.all_targets == found.simulated.labels
    metrics = found.metrics()
    assert metrics["masked_token_accuracy"] == found.masked.accuracy
    shown = found.masked.labels / found.masked.all_targets
    expected = pytest.approx(found.masked.accuracy * shown)
    assert metrics["target_token_accuracy_of_masked"] == expected
    assert metrics["target_token_accuracy_at_ratio_1"] == found.simulated.accuracy
    assert Validated.of(found.content()).metrics() == metrics
    full = objective_of("peft-bd", verifier, rows, mask_ratio=(1.0, 1.0))
    assert validation.run(full, 0, Processes()).masked is None
