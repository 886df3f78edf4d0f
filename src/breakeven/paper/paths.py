"""The stage of the diagnostic loop: both measurement paths on the same prompts, in turn.

Loop and engine decode the same prompts plainly and with every ``peft-bd`` drafter, in an order
drawn anew for each prompt. As both draft the same tokens, a difference in speed is implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from breakeven.cost.ledger import Ledger
from breakeven.decode.request import Completion, Request
from breakeven.drafters.registry import create
from breakeven.errors import ModelError
from breakeven.measure.configuration import PLAIN
from breakeven.measure.inspection import inspect_records
from breakeven.measure.machine import machine_facts
from breakeven.measure.prompts import Prompt
from breakeven.measure.records import Record, RecordFile
from breakeven.measure.schedule import interleaved
from breakeven.measure.trial import Decoding, Method, quiet_collector
from breakeven.paper.loop import DRAFTER, MODE, DiagnosticLoop
from breakeven.paper.session import Session
from breakeven.paper.speeds import figures
from breakeven.progress import meter
from breakeven.verifier.int8 import base_name, is_int8

LOOP, ENGINE = "loop", "engine"
WARM_TOKENS = 8
Way = Callable[[Prompt, int], tuple[Completion, Ledger]]


def measure_paths(session: Session) -> dict[str, Any]:
    """Decode, audit and compare; resumes from the records of an interrupted run."""
    settings, folder = session.recipe.loop, session.folder.place("loop")
    drafters = session.needed("loop", "peft-bd", "anchored")
    prompts = session.prompts(settings.prompts)
    ways = ways_to_decode(session, drafters)
    folder.mkdir(parents=True, exist_ok=True)
    order = list(interleaved(list(ways), len(prompts), settings.repeats, session.recipe.seed))
    with RecordFile(folder / "requests.jsonl") as file, quiet_collector():
        there = {record.key for record in file.records}
        missing = [t for t in order if (t[2], t[0], prompts[t[1]].id) not in there]
        for way in ways.values() if missing else ():
            way(prompts[0], min(WARM_TOKENS, settings.max_new_tokens))
        with meter("loop", total=len(order), done=len(order) - len(missing)) as progress:
            for repeat, index, name in missing:
                answer, ledger = ways[name](prompts[index], settings.max_new_tokens)
                file.append(Record.of(name, repeat, prompts[index], answer, ledger))
                progress.advance()
        records = file.records
    verifier = session.loaded.verifier
    return {
        "machine": machine_facts(),
        "modes": {LOOP: MODE, ENGINE: verifier.mode},
        "dtype": str(verifier.dtype).removeprefix("torch."),
        "prompts": len(prompts),
        "paths": {
            path: summary(session, prompts, of_path(records, path), list(drafters))
            for path in (LOOP, ENGINE)
        },
        "agreement": {name: agreement(records, name) for name in drafters},
    }


def ways_to_decode(session: Session, drafters: Mapping[str, Path]) -> dict[str, Way]:
    """``path:configuration`` to a function of prompt and limit."""
    loaded = session.loaded
    verifier = loaded.verifier
    if is_int8(loaded.identity.name):
        raise ModelError(
            f"the diagnostic loop runs transformers' own weights, not '{loaded.identity.name}'; "
            f"use {base_name(loaded.identity.name)}, or --skip loop"
        )
    loop = DiagnosticLoop.load(
        loaded.path, drafters, dtype=verifier.dtype, device=verifier.device, eos=loaded.eos
    )

    def by_loop(name: str | None) -> Way:
        def way(prompt: Prompt, limit: int) -> tuple[Completion, Ledger]:
            request = Request(prompt.id, tuple(prompt.prompt_ids), limit, loaded.eos)
            return loop.decode(request, name)

        return way

    def by_engine(method: Method) -> Way:
        return lambda prompt, limit: Decoding(verifier, loaded.eos, limit).run(method, prompt)

    ways: dict[str, Way] = {
        f"{LOOP}:{PLAIN}": by_loop(None),
        f"{ENGINE}:{PLAIN}": by_engine(Method()),
    }
    for name, folder in drafters.items():
        drafter = create(DRAFTER, loaded, folder)
        ways[f"{LOOP}:{name}"] = by_loop(name)
        ways[f"{ENGINE}:{name}"] = by_engine(Method(name, drafter, drafter.longest or 1))
    return ways


def of_path(records: Sequence[Record], path: str) -> list[Record]:
    """The records of one path, under the configurations' own names."""
    return [
        replace(r, config=r.config.removeprefix(f"{path}:"))
        for r in records
        if r.config.startswith(f"{path}:")
    ]


def summary(
    session: Session, prompts: Sequence[Prompt], records: Sequence[Record], names: Sequence[str]
) -> dict[str, Any]:
    """Figures and exact-output audit of one path."""
    loaded = session.loaded
    decoding = Decoding(loaded.verifier, loaded.eos, session.recipe.loop.max_new_tokens)
    audits = inspect_records(decoding, prompts, records, names)
    return {
        "figures": [f.row() for f in figures(records, names, seed=session.recipe.seed)],
        "audits": [a.row() for a in audits],
    }


def agreement(records: Sequence[Record], name: str) -> dict[str, int]:
    """On how many prompts both paths went through the same number of rounds, accepting alike."""
    first = {(r.config, r.id): r for r in records if r.repeat == 0}
    ids = [id for config, id in first if config == f"{LOOP}:{name}"]
    pairs = [(first[f"{LOOP}:{name}", id], first[f"{ENGINE}:{name}", id]) for id in ids]
    same = sum(
        (a.token_ids, a.rounds, a.accepted_histogram)
        == (b.token_ids, b.rounds, b.accepted_histogram)
        for a, b in pairs
    )
    return {"prompts": len(pairs), "same": same}
