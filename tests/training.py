"""Tiny texts to train on: a tiny verifier's own greedy continuations of random prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from breakeven.core import Finish
from breakeven.data.artifact import Row
from breakeven.decode.generate import generate
from breakeven.decode.request import Request
from breakeven.progress import Meter
from breakeven.train.acceptance import Acceptance, real_acceptance
from breakeven.train.bonus import BonusObjective
from breakeven.train.clean import CleanStream
from breakeven.train.fastmtp import FastMtpObjective
from breakeven.train.objective import Objective
from breakeven.train.peft_bd import PeftBdObjective
from breakeven.train.recipe import (
    BonusSettings,
    EvaluateSettings,
    FastMtpSettings,
    GatedSettings,
    PeftBdSettings,
)
from breakeven.verifier.decoder import LeanVerifier

ROOTED = "root_in_block"
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "peft-bd": ("peft-bd", {}),
    "peft-bd, shifted": ("peft-bd", {"labels": "shift"}),
    "peft-bd, rooted": ("peft-bd", {"anchoring": ROOTED}),
    "peft-bd, rooted, shifted": ("peft-bd", {"anchoring": ROOTED, "labels": "shift"}),
    "peft-bd-gated": ("peft-bd-gated", {}),
    "peft-bd-gated, causal": ("peft-bd-gated", {"causal": True}),
    "peft-bd-gated, same": ("peft-bd-gated", {"labels": "same"}),
    "peft-bd-gated, same, unanchored": ("peft-bd-gated", {"labels": "same", "anchoring": "none"}),
    "peft-bd-gated, rooted": ("peft-bd-gated", {"anchoring": ROOTED, "labels": "same"}),
    "peft-bd-gated, rooted, shifted": ("peft-bd-gated", {"anchoring": ROOTED}),
    "peft-bd-gated, late": ("peft-bd-gated", {"layers": 1, "late": True}),
    "peft-bd-fused": ("peft-bd-fused", {}),
    "fastmtp": ("fastmtp", {}),
}
"""Every trainable method in every shape that changes which rows run: name -> method, settings."""

METHODS = tuple(VARIANTS)


def own_rows(
    verifier: LeanVerifier, count: int, *, new_tokens: int = 16, seed: int = 0
) -> list[Row]:
    """Rows with prompts of 3 to 8 tokens."""
    generator = torch.Generator().manual_seed(seed)
    requests = []
    for i in range(count):
        size = int(torch.randint(3, 9, (1,), generator=generator))
        prompt = torch.randint(0, verifier.shape.vocab_size, (size,), generator=generator)
        requests.append(Request(f"r{i}", tuple(prompt.tolist()), new_tokens))
    answers = {c.id: c.tokens for c in generate(verifier, requests)}
    return [Row(r.id, "chat", r.prompt, tuple(answers[r.id]), Finish.LENGTH) for r in requests]


def objective_of(
    name: str,
    verifier: LeanVerifier,
    rows: Sequence[Row],
    *,
    teacher: torch.dtype | None = None,
    **settings: object,
) -> Objective:
    """An objective of a variant, its clean stream in the verifier's own precision, prepared."""
    torch.manual_seed(0)
    objective: Objective
    method, variant = VARIANTS[name]
    frozen = verifier.recast(teacher) if teacher else verifier
    clean = CleanStream(frozen, with_keys=method in ("peft-bd-gated", "peft-bd-fused"))
    if method == "fastmtp":
        chosen = {"vocabulary": None, "start_rows": 4, **settings}
        objective = FastMtpObjective(frozen, FastMtpSettings(**chosen), clean, deployed=verifier)  # type: ignore[arg-type]
    elif method == "peft-bd-fused":
        objective = bonus_objective(verifier, frozen, clean, settings)
    else:
        kind = GatedSettings if method == "peft-bd-gated" else PeftBdSettings
        small = {"rank": 8, "anchors": 8, "masks": 3, "starts": "random"}
        chosen = {**small, **variant, **settings}
        objective = PeftBdObjective(frozen, kind(**chosen), clean)  # type: ignore[arg-type]
    objective.prepare(rows, rows, fresh=True)
    return objective


def bonus_objective(
    verifier: LeanVerifier, frozen: LeanVerifier, clean: CleanStream, settings: dict[str, object]
) -> BonusObjective:
    """A bonus module behind an adapter whose weights are noise."""
    with TemporaryDirectory() as folder:
        plan = GatedSettings(rank=8, masks=3)
        adapter = PeftBdObjective(verifier, plan, CleanStream(verifier, with_keys=True))
        shaken(adapter).save(Path(folder))
        chosen = {"rank": 48, "anchors": 8, "soft": 0.0, "adapter": folder, **settings}
        return BonusObjective(frozen, BonusSettings(**chosen), clean, deployed=verifier)  # type: ignore[arg-type]


def shaken(objective: Objective, scale: float = 0.1) -> Objective:
    """The objective with noise on all weights, so that nothing is zero by construction."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in objective.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += scale * noise
    return objective


def fit(objective: Objective, rows: Sequence[Row], steps: int, lr: float = 1e-2) -> float:
    """Plain AdamW on the same rows again and again; the last loss."""
    optimizer = torch.optim.AdamW(objective.parameters(), lr=lr, weight_decay=0.0)
    loss = torch.tensor(0.0)
    for step in range(steps):
        loss = objective(rows, torch.Generator().manual_seed(step)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def decoded(
    objective: Objective,
    verifier: LeanVerifier,
    rows: Sequence[Row],
    batch: int = 1,
    bar: Meter | None = None,
) -> Acceptance:
    """Real acceptance on the prompts of ``rows``, as long as their continuations."""
    settings = EvaluateSettings(max_new_tokens=len(rows[0].continuation_ids), batch=batch)
    return real_acceptance(
        verifier, objective.drafter(), rows, settings, k=objective.drafts, eos=(), bar=bar
    )
