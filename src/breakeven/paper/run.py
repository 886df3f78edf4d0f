"""Run the chosen stages one after the other; a finished one is not repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from breakeven.config import write_recipe
from breakeven.paper.folder import KEPT, Done
from breakeven.paper.session import Session, hashes
from breakeven.paper.stages import Stage

Say = Callable[[str], None]


def run_stages(session: Session, chosen: Sequence[Stage], *, force: bool, say: Say) -> list[Done]:
    """Run ``chosen``, in order; their records. ``force`` runs them anew."""
    session.folder.open()
    write_recipe(session.recipe, session.folder.path / KEPT)
    for stage in chosen if force else ():
        session.folder.clear(stage.name)
    records = []
    for number, stage in enumerate(chosen, start=1):
        headline = f"[{number}/{len(chosen)}] {stage.name}"
        record, fresh = run_stage(session, stage, headline, say)
        if fresh:
            say(f"{headline}: done in {record.seconds:.0f} s")
        records.append(record)
    return records


def run_stage(session: Session, stage: Stage, headline: str, say: Say) -> tuple[Done, bool]:
    """One stage's record, and whether it was run now."""
    settings = stage.settings(session.recipe)
    given = (stage.name,) if stage.name in session.recipe.drafters else stage.uses
    inputs = hashes(session.drafters(*given))
    found = session.folder.begin(stage.name, settings, inputs)
    if found.result is not None:
        say(f"{headline}: finished before")
        return found, False
    say(f"{headline}: {stage.about(session.recipe)}")
    began = time.perf_counter()
    result = stage.run(session)
    done = replace(found, seconds=time.perf_counter() - began, result=result)
    session.folder.write(done)
    return done, True
