"""The stages on our engine: the benchmark, the profile of 20 prompts, the ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from breakeven.core import Pass, Phase
from breakeven.cost.ledger import Ledger
from breakeven.drafters.base import Drafter
from breakeven.drafters.registry import create
from breakeven.measure.bench import run_bench
from breakeven.measure.conclusion import BenchResult
from breakeven.measure.configuration import Configuration
from breakeven.measure.trial import Decoding, Method, warm_up
from breakeven.paper.loop import DRAFTER
from breakeven.paper.recipe import DecodingSection
from breakeven.paper.session import Session
from breakeven.paper.speeds import figures
from breakeven.progress import meter

ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "one-step": ("peft-bd", {}),
    "two-steps": ("peft-bd", {"steps": 2}),
    "two-steps-refilled": ("peft-bd", {"steps": 2, "refill": "all"}),
    "verifier-cache": ("peft-bd", {"cache": "shared"}),
    "anchored": ("anchored", {}),
}
"""Variant -> whose weights, decoded with which options."""


def benchmark(session: Session) -> dict[str, Any]:
    """PEFT-BD and FastMTP against plain decoding, interleaved, at least three times."""
    drafters = session.needed("bench", "peft-bd", "fastmtp")
    made = {name: create(name, session.loaded, folder) for name, folder in drafters.items()}
    drafts = {"fastmtp": session.recipe.fastmtp_drafts}
    lengths = {name: drafts.get(name) or d.longest or 1 for name, d in made.items()}
    result = measured(session, session.recipe.bench, "bench", drafters, made, lengths)
    return summary(session, result, lengths)


def ablate(session: Session) -> dict[str, Any]:
    """The paper's variants, decoded side by side (:data:`ABLATIONS`)."""
    available = session.needed("ablations", "peft-bd", "anchored")
    variants = {name: v for name, v in ABLATIONS.items() if v[0] in available}
    folders = {name: available[source] for name, (source, _) in variants.items()}
    made = {
        name: create(DRAFTER, session.loaded, folders[name], **options)
        for name, (_, options) in variants.items()
        if options.get("steps", 1) <= masks_of(session, folders[name])
    }
    lengths = {name: drafter.longest or 1 for name, drafter in made.items()}
    result = measured(session, session.recipe.ablations, "ablations", folders, made, lengths)
    return summary(session, result, lengths)


def masks_of(session: Session, folder: Path) -> int:
    """Masks of a trained block drafter: it cannot be denoised in more steps."""
    return create(DRAFTER, session.loaded, folder).longest or 1


def measured(
    session: Session,
    settings: DecodingSection,
    stage: str,
    folders: Mapping[str, Path],
    made: Mapping[str, Drafter],
    lengths: Mapping[str, int],
) -> BenchResult:
    """Run, or finish, one benchmark in the stage's folder."""
    recipe, place = session.recipe, session.folder.place(stage)
    return run_bench(
        session.loaded,
        session.prompts(settings.prompts),
        [Configuration(name, lengths[name], folders[name]) for name in made],
        place,
        repeats=settings.repeats,
        max_new_tokens=settings.max_new_tokens,
        seed=recipe.seed,
        artifact=str(session.artifact_path),
        split=recipe.artifact.split,
        command=session.command,
        resume=place.is_dir(),
        make_drafter=lambda c: made[c.drafter],
    )


def summary(session: Session, result: BenchResult, lengths: Mapping[str, int]) -> dict[str, Any]:
    """What the tables need of a benchmark; its folder has the rest."""
    names = {Configuration(name, k).name: name for name, k in lengths.items()}
    table = figures(result.records, names, seed=session.recipe.seed)
    return {
        "machine": result.description["machine"],
        "mode": result.description["mode"],
        "dtype": result.description["dtype"],
        "warnings": result.description["warnings"],
        "lengths": dict(lengths),
        "figures": [{**f.row(), "config": names.get(f.config, f.config)} for f in table],
        "audits": [{**a.row(), "config": names[a.config]} for a in result.audits],
        "verdict": result.verdict.row(),
    }


def profile(session: Session) -> dict[str, Any]:
    """Call counts and mean latencies of PEFT-BD's passes, beside plain decoding's."""
    settings, loaded = session.recipe.profile, session.loaded
    folder = session.needed("profile", "peft-bd")["peft-bd"]
    drafter = create(DRAFTER, loaded, folder)
    decoding = Decoding(loaded.verifier, loaded.eos, settings.max_new_tokens)
    methods = [Method(), Method("peft-bd", drafter, drafter.longest or 1)]
    prompts = session.prompts(settings.prompts)
    warm_up(decoding, methods, prompts[0])
    ledgers: dict[str, list[Ledger]] = {method.name: [] for method in methods}
    with meter("profile", total=len(prompts)) as progress:
        for prompt in prompts:
            for method in methods:
                ledgers[method.name].append(decoding.run(method, prompt)[1])
            progress.advance()
    plain, own = ledgers["ar"], ledgers["peft-bd"]
    committed, rounds = sum(x.committed for x in own), sum(len(x.rounds) for x in own)
    return {
        "prompts": len(prompts),
        "max_new_tokens": settings.max_new_tokens,
        "plain": latency(plain, Phase.PLAIN),
        "draft": latency(own, Phase.DRAFT),
        "verify": latency(own, Phase.VERIFY),
        "other_s": sum(x.other_s for x in own) / rounds,
        "committed": committed / rounds,
    }


def latency(ledgers: Sequence[Ledger], phase: Phase) -> dict[str, float]:
    """Number of passes of a phase, their mean seconds and mean rows."""
    passes: list[Pass] = [p for x in ledgers for p in x.passes if p.phase is phase]
    if not passes:
        return {"calls": 0, "mean_s": float("nan"), "mean_rows": float("nan")}
    return {
        "calls": len(passes),
        "mean_s": mean(p.seconds for p in passes),
        "mean_rows": mean(p.rows for p in passes),
    }
