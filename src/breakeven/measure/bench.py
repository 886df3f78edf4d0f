"""The benchmark: plain decoding and every configuration on the same prompts, interleaved.

    for each repeat, for each prompt: every configuration, in an order drawn anew

in one process, after warming up, each prompt alone with a ledger of its own. Every result is
written to ``requests.jsonl`` as it is measured, and a killed run continues where it stopped. All
tables are computed from those lines (see ``conclude``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from breakeven.config import Section, write_recipe
from breakeven.cost.calibration import Calibration
from breakeven.cost.curve import CostCurve
from breakeven.decode.policy.named import policy_named
from breakeven.drafters.base import Drafter
from breakeven.measure.conclusion import BenchResult, conclude
from breakeven.measure.configuration import PLAIN, Configuration, check
from breakeven.measure.cost_curve import measure_cost_curve
from breakeven.measure.description import FILE, RECORDS, Plan, open_folder, recorded_layouts
from breakeven.measure.doubts import drifted, few_prompts, slow_plain_step, warn
from breakeven.measure.machine import load_1m
from breakeven.measure.neighbours import Neighbours, busy_now, disturbed
from breakeven.measure.prompts import Prompt
from breakeven.measure.records import Record, RecordFile
from breakeven.measure.results import write_json
from breakeven.measure.schedule import interleaved
from breakeven.measure.trial import Decoding, Method, quiet_collector, warm_up
from breakeven.progress import meter
from breakeven.verifier.load import Loaded

COST_CURVE, RECIPE = "cost_curve.csv", "recipe.yaml"

MakeDrafter = Callable[[Configuration], Drafter]


def run_bench(
    loaded: Loaded,
    prompts: Sequence[Prompt],
    configurations: Sequence[Configuration],
    out: Path,
    *,
    repeats: int = 3,
    max_new_tokens: int = 128,
    seed: int = 0,
    artifact: str = "",
    split: str = "test",
    command: str = "",
    recipe: Section | None = None,
    resume: bool = False,
    force: bool = False,
    audit: bool = True,
    make_drafter: MakeDrafter | None = None,
    prices: Calibration | None = None,
) -> BenchResult:
    """Measure, write every file of docs/formats.md into ``out``, and return them as objects.

    ``prompts`` are rows of an artifact (see ``prompts.choose``). ``audit`` checks the outputs of
    the first repeat against plain decoding's. ``recipe`` is kept beside the run. ``resume``
    continues a run that was stopped, ``force`` starts it over; without them a folder that holds
    one is an :class:`OutputExistsError`. ``make_drafter`` replaces the drafter registry. ``prices``
    are for policies that choose by them; without, each measures a curve when decoding starts.
    """
    plan = Plan(
        list(prompts),
        check(configurations),
        repeats,
        max_new_tokens,
        seed,
        artifact,
        split,
        command,
    )
    make = make_drafter or registered(loaded)
    if resume and not force:
        make = as_begun(make, recorded_layouts(out))
    methods = make_methods(plan.configurations, make, prices)
    description = open_folder(out, plan.describe(loaded, methods), resume=resume, force=force)
    if recipe is not None:
        write_recipe(recipe, out / RECIPE)
    decoding = Decoding(loaded.verifier, loaded.eos, max_new_tokens)
    few, busy = warn(few_prompts(len(plan.prompts))), warn(busy_now())
    neighbours = Neighbours()
    records, fresh = _measure(plan, decoding, methods, out)
    curve = _curve(loaded, out, seed, fresh)
    told = few
    if fresh:
        crowd = _crowd(description["machine"], neighbours)
        late = warn(slow_plain_step(curve), drifted(plain_steps(records)))
        if not busy:  # else a busy machine was spoken of
            warn(*crowd)
        told = description["warnings"] = [*few, *(crowd or busy), *late]
        write_json(out / FILE, description)
    result = conclude(loaded, plan, records, curve, description, out, audit=audit)
    return replace(result, told=tuple(told))


def plain_steps(records: Sequence[Record]) -> list[float]:
    """Seconds of a plain step in each plain answer, in the order measured."""
    return [r.decode_s / (r.tokens - 1) for r in records if r.config == PLAIN and r.tokens > 1]


def _crowd(machine: dict[str, Any], neighbours: Neighbours) -> list[str]:
    """Note the state of the machine at the end; the doubt, if others kept it busy.

    A run that was continued has that of its worst part.
    """
    before = machine.get("others_busy")
    worst = max(neighbours.cores, before if isinstance(before, float) else 0.0)
    machine["load_1m_end"], machine["others_busy"] = load_1m(), round(worst, 2)
    found = disturbed(worst)
    return [] if found is None else [found]


def registered(loaded: Loaded) -> MakeDrafter:
    """Drafters by their registered names."""
    from breakeven.drafters.registry import create

    return lambda c: create(c.drafter, loaded, c.path, **c.options)


def as_begun(make: MakeDrafter, layouts: Mapping[str, Mapping[str, Any]]) -> MakeDrafter:
    """The same drafters, laid out as in the run that goes on (:attr:`Drafter.layout`)."""
    return lambda c: make(replace(c, options={**layouts.get(c.name, {}), **c.options}))


def make_methods(
    configurations: Sequence[Configuration], make: MakeDrafter, prices: Calibration | None = None
) -> list[Method]:
    """Plain decoding and every configuration; draft lengths share one loaded drafter.

    A policy is its configuration's own and learns over the whole run, as in a long-lived process.
    """
    drafters: dict[tuple[str, ...], Drafter] = {}
    methods = [Method()]
    for c in configurations:
        if c.source not in drafters:
            drafters[c.source] = make(c)
        policy = policy_named(c.policy, c.k, prices)
        methods.append(Method(c.name, drafters[c.source], c.k, policy))
    return methods


def _measure(
    plan: Plan, decoding: Decoding, methods: Sequence[Method], out: Path
) -> tuple[list[Record], bool]:
    """All records of the run, and whether any of them is new."""
    by_name = {method.name: method for method in methods}
    order = list(interleaved(list(by_name), len(plan.prompts), plan.repeats, plan.seed))
    with RecordFile(out / RECORDS) as file:
        there = {record.key for record in file.records}
        missing = [t for t in order if (t[2], t[0], plan.prompts[t[1]].id) not in there]
        if not missing:
            return file.records, False
        warm_up(decoding, methods, plan.prompts[0])
        with ExitStack() as stack:
            stack.enter_context(quiet_collector())
            progress = stack.enter_context(
                meter("bench", total=len(order), done=len(order) - len(missing))
            )
            for repeat, index, name in missing:
                prompt = plan.prompts[index]
                completion, ledger = decoding.run(by_name[name], prompt)
                file.append(Record.of(name, repeat, prompt, completion, ledger))
                progress.advance()
        return file.records, True


def _curve(loaded: Loaded, out: Path, seed: int, fresh: bool) -> CostCurve:
    """The cost curve of this run, measured unless a finished run has one."""
    path = out / COST_CURVE
    if path.exists() and not fresh:
        return CostCurve.read(path)
    curve = measure_cost_curve(loaded.verifier, seed=seed)
    curve.write(path)
    return curve
