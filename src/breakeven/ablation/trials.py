"""Decode the held-out prompts with every variant, beside plain decoding.

    for each seed, for each prompt: plain decoding and every variant, in an order drawn anew

A variant's file holds its record of each prompt and plain decoding's of the same minute, so costs
in plain steps stay fair when a killed run goes on or a variant is added later.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from breakeven.ablation.places import Places
from breakeven.ablation.plan import Plan, Variant
from breakeven.drafters.registry import create
from breakeven.measure.configuration import PLAIN
from breakeven.measure.doubts import few_prompts, warn
from breakeven.measure.neighbours import busy_now
from breakeven.measure.prompts import Prompt, fingerprint
from breakeven.measure.records import Record, RecordFile, read_records
from breakeven.measure.results import write_json
from breakeven.measure.trial import Decoding, Method, quiet_collector, warm_up
from breakeven.progress import meter
from breakeven.train.provenance import PROVENANCE_FILE, file_sha256
from breakeven.verifier.load import Loaded

Trial = tuple[Record, Record]
"""Plain decoding's record of a prompt, and the variant's."""
Trials = dict[str, Trial]
"""By prompt id."""


def decode(plan: Plan, places: Places, loaded: Loaded, prompts: Sequence[Prompt]) -> None:
    """Decode what is not decoded yet. All runs must be trained."""
    decoding = Decoding(loaded.verifier, loaded.eos, plan.grid.decode.max_new_tokens)
    for seed in plan.grid.seeds:
        missing = {}
        for variant in plan.running:
            _make_room(places, variant, seed, terms(plan, places, variant, seed, prompts))
            there = paired(_records(places.records(variant.name, seed)), variant.name)
            if lacking := [prompt.id for prompt in prompts if prompt.id not in there]:
                missing[variant.name] = frozenset(lacking)
        if not missing:
            continue
        warn(few_prompts(len(prompts)), busy_now())
        methods = {name: _method(plan.variants[name], places, loaded, seed) for name in missing}
        _decode(decoding, methods, prompts, missing, places, seed)


def terms(
    plan: Plan, places: Places, variant: Variant, seed: int, prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """With what the prompts are decoded; records made with anything else are void."""
    weights = places.run(variant.origin, seed) / PROVENANCE_FILE
    return {
        "drafter": variant.recipe.drafter,
        "of": variant.origin,
        "provenance_sha256": file_sha256(weights),
        "options": dict(variant.options),
        "k": variant.k,
        "split": plan.grid.decode.split,
        "prompts": fingerprint(prompts),
        "max_new_tokens": plan.grid.decode.max_new_tokens,
    }


def complete(
    plan: Plan, places: Places, variant: Variant, prompts: Sequence[Prompt]
) -> dict[int, Trials] | None:
    """The trials of a variant by seed, or None while any is missing or void."""
    found = {}
    for seed in plan.grid.seeds:
        if not places.finished(variant.origin, seed):
            return None
        if _terms_of(places, variant, seed) != terms(plan, places, variant, seed, prompts):
            return None
        trials = paired(_records(places.records(variant.name, seed)), variant.name)
        if any(prompt.id not in trials for prompt in prompts):
            return None
        found[seed] = {prompt.id: trials[prompt.id] for prompt in prompts}
    return found


def paired(records: Iterable[Record], variant: str) -> Trials:
    """The prompts of which both records are there; of several the last."""
    by_key = {(record.config, record.id): record for record in records}
    return {
        id: (by_key[PLAIN, id], own)
        for (config, id), own in by_key.items()
        if config == variant and (PLAIN, id) in by_key
    }


def _make_room(places: Places, variant: Variant, seed: int, wanted: Mapping[str, Any]) -> None:
    """Drop records that were made with other weights or settings."""
    if _terms_of(places, variant, seed) == wanted:
        return
    places.records(variant.name, seed).unlink(missing_ok=True)
    write_json(places.decoding(variant.name, seed), wanted)


def _terms_of(places: Places, variant: Variant, seed: int) -> Any:
    try:
        return json.loads(places.decoding(variant.name, seed).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _records(path: Path) -> list[Record]:
    return read_records(path) if path.is_file() else []


def _method(variant: Variant, places: Places, loaded: Loaded, seed: int) -> Method:
    folder = places.run(variant.origin, seed)
    drafter = create(variant.recipe.drafter, loaded, folder, **variant.options)
    assert variant.k is not None, "the rehearsal fills it in"
    return Method(variant.name, drafter, variant.k)


def _decode(
    decoding: Decoding,
    methods: Mapping[str, Method],
    prompts: Sequence[Prompt],
    missing: Mapping[str, frozenset[str]],
    places: Places,
    seed: int,
) -> None:
    """Decode the missing prompts of one seed, all variants of a prompt side by side."""
    total = len(prompts) * len(methods)
    done = total - sum(map(len, missing.values()))
    generator = random.Random(seed)
    warm_up(decoding, [Method(), *methods.values()], prompts[0])
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(RecordFile(places.records(name, seed))) for name in methods
        }
        stack.enter_context(quiet_collector())
        progress = stack.enter_context(meter(f"decoding, seed {seed}", total, done=done))
        for prompt in prompts:
            names = [name for name in methods if prompt.id in missing[name]]
            order = [PLAIN, *names] if names else []
            generator.shuffle(order)
            found = {}
            for name in order:
                completion, ledger = decoding.run(methods.get(name, Method()), prompt)
                found[name] = Record.of(name, 0, prompt, completion, ledger)
            for name in names:
                files[name].append(found[PLAIN])
                files[name].append(found[name])
            progress.advance(len(names))
