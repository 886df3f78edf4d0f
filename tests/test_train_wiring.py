"""Teacher-forced against deployed survival: a gap beyond tolerance and noise is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from breakeven.train.acceptance import Acceptance
from breakeven.train.feed import Feed
from breakeven.train.journal import METRICS_FILE, entries
from breakeven.train.loop import Trainer
from breakeven.train.objective import Objective
from breakeven.train.processes import Processes
from breakeven.train.recipe import LoopSettings
from breakeven.train.score import Score
from breakeven.train.validation import Validated, Validation
from breakeven.train.wiring import Wiring
from tiny import tiny_verifier
from training import decoded, fit, objective_of, own_rows


def score(survived: int, blocks: int) -> Score:
    right = torch.zeros(blocks, 1, dtype=torch.bool)
    right[:survived] = True
    return Score.of(right, torch.ones_like(right))


def decoding(*texts: tuple[int, int]) -> Acceptance:
    """Texts of so many right guesses in so many rounds."""
    parts = tuple((guesses + rounds, rounds, guesses) for guesses, rounds in texts)
    return Acceptance((sum(n for _, n in texts),), (sum(g for g, _ in texts),), parts)


def test_a_gap_beyond_tolerance_and_noise_is_a_fault() -> None:
    taught = [score(80, 100), score(82, 100), score(79, 100)]
    healthy = Wiring.of(taught, decoding((65, 100), (70, 100), (68, 100)))
    assert not healthy.fault
    assert "within what is expected" in str(healthy)
    broken = Wiring.of(taught, decoding((12, 100), (10, 100), (14, 100)))
    assert broken.fault
    assert "a wiring fault; compare the drafter's logits" in str(broken)
    assert "\n" not in str(broken)


def test_few_or_noisy_texts_accuse_nobody() -> None:
    taught = [score(80, 100)]
    assert not Wiring.of(taught, decoding((0, 100))).fault  # one text has no error bar
    noisy = [score(9, 10), score(0, 10)]
    assert not Wiring.of(noisy, decoding((0, 10), (1, 10))).fault


class Swapped(Objective):
    """Decodes with a drafter that has seen other weights: what a wiring fault looks like."""

    def __init__(self, inner: Objective, deployed: Objective) -> None:
        torch.nn.Module.__init__(self)
        self.inner = inner
        self.name, self.drafts = inner.name, inner.drafts
        self._other = [deployed]  # not a sub-module

    def labels(self, row):  # type: ignore[no-untyped-def]
        return self.inner.labels(row)

    def forward(self, rows, generator):  # type: ignore[no-untyped-def]
        return self.inner(rows, generator)

    def judge(self, rows, generator):  # type: ignore[no-untyped-def]
        return self.inner.judge(rows, generator)

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
            Validation(rows, lambda o, some: decoded(o, verifier, some)),
            tmp_path / name,
        )
        outcomes[name] = trainer.run().validated.wiring
        shown = capsys.readouterr().err
        assert ("warning: step 1: deployed drafts survive" in shown) == (name == "bad")
        logged = entries(tmp_path / name / METRICS_FILE)[-1]
        assert logged["wiring_fault"] == (name == "bad")
        assert logged["real_prefix_length"] == outcomes[name].real
    assert outcomes["bad"].simulated == outcomes["good"].simulated


def test_partly_shown_targets_have_both_readings_of_target_accuracy() -> None:
    verifier = tiny_verifier()
    rows = own_rows(verifier, 3)
    objective = objective_of("peft-bd", verifier, rows, mask_ratio=(0.3, 1.0), masks=8)
    validation = Validation(rows, lambda o, some: decoded(o, verifier, some))
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
