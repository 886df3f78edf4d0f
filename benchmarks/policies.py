"""Draft-length policies beside plain decoding: every fixed K, and adaptive.

    python -m benchmarks.policies --threads 2 --drafter ngram --drafter suffix --json policies.json

Each prompt is decoded plainly and in every configuration, one after another in an order drawn
anew. Three groups: held-out prompts of the artifact, copy-heavy prompts (summaries with
quotations, edits of files), and adversarial ones: prompts of random tokens, and the held-out
prompts with a *spoiled* drafter, which costs what the first drafter costs and is always wrong.
Policies learn over the run, as in a process that serves; their warming up is not timed. Drafters
forget earlier answers. Intervals are paired by prompt; below twelve they are Student's t.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.command import Parser, positive, start
from benchmarks.texts import copy_heavy, random_tokens
from breakeven.core import Draft
from breakeven.data.artifact import load_artifact
from breakeven.data.render import Renderer
from breakeven.drafters.base import Context, Drafter
from breakeven.drafters.wrapper import Counterfeit
from breakeven.measure.acceptance import ALL
from breakeven.measure.bench import make_methods, registered
from breakeven.measure.configuration import PLAIN, cross, parse_lengths
from breakeven.measure.machine import load_1m, machine_facts
from breakeven.measure.performance import Performance, performance_table
from breakeven.measure.prompts import Prompt, choose
from breakeven.measure.records import Record
from breakeven.measure.schedule import interleaved
from breakeven.measure.trial import Decoding, Method, quiet_collector, warm_up
from breakeven.progress import meter
from breakeven.verifier.load import Loaded, load_verifier

HELD_OUT, COPY, RANDOM, SPOILED = "held-out", "copy-heavy", "random tokens", "spoiled drafter"
FLOOR = 0.97
TARGETS = {HELD_OUT: "best fixed", COPY: 2.0, RANDOM: FLOOR, SPOILED: FLOOR}
"""What adaptive is to reach in each group; every category's interval is to stay above the floor."""


class Spoiled(Counterfeit):
    """A drafter at its full price, all of whose guesses are made wrong."""

    name = "spoiled"

    def __init__(self, inner: Drafter, vocab_size: int) -> None:
        super().__init__(inner)
        self.looks_up = inner.looks_up
        self._vocab_size = vocab_size

    def glimpse(self, context: Context, k: int) -> list[Draft] | None:
        """The inner drafter's, spoiled."""
        drafts = self.inner.glimpse(context, k)
        return None if drafts is None else [self._spoil(draft) for draft in drafts]

    def propose(self, context: Context, k: int) -> list[Draft]:
        """The inner drafter's, spoiled."""
        return [self._spoil(draft) for draft in self.inner.propose(context, k)]

    def _spoil(self, draft: Draft) -> Draft:
        wrong = ((token + 1) % self._vocab_size for token in draft.guesses)
        return replace(draft, tokens=(*draft.tokens[: draft.free], *wrong))


def measure(
    decoding: Decoding, methods: Sequence[Method], prompts: Sequence[Prompt], seed: int, title: str
) -> list[Performance]:
    """Decode every prompt with every method, interleaved; the table by category."""
    by_name = {method.name: method for method in methods}
    warm_up(decoding, methods, prompts[0])
    records = []
    order = list(interleaved(list(by_name), len(prompts), 1, seed))
    with quiet_collector(), meter(title, total=len(order)) as progress:
        for repeat, index, name in order:
            completion, ledger = decoding.run(by_name[name], prompts[index])
            records.append(Record.of(name, repeat, prompts[index], completion, ledger))
            progress.advance()
    return performance_table([records], list(by_name), seed=seed)


def groups(
    loaded: Loaded, options: argparse.Namespace
) -> dict[str, tuple[Decoding, list[Method], list[Any]]]:
    """What is decoded how, by group."""
    artifact = load_artifact(options.artifact, loaded.identity)
    held_out = choose(artifact.rows("test"), options.prompts, options.seed)
    configurations = cross(options.drafter, parse_lengths(options.k))
    make = registered(loaded)
    methods = make_methods(configurations, make)
    size = loaded.verifier.shape.vocab_size
    first = cross(options.drafter[:1], [4, "adaptive"])
    spoiled = [
        replace(m, name=m.name and f"spoiled {m.name}") if m.drafter else m
        for m in make_methods(first, lambda c: Spoiled(make(c), size))
    ]
    short = Decoding(loaded.verifier, loaded.eos, options.max_new_tokens)
    long = replace(short, max_new_tokens=2 * options.max_new_tokens)
    return {
        HELD_OUT: (short, methods, held_out),
        COPY: (long, methods, copy_heavy(Renderer(loaded.tokenizer))),
        RANDOM: (short, methods, random_tokens(6, size, options.seed)),
        SPOILED: (short, spoiled, held_out[: max(5, options.prompts // 4)]),
    }


def table(found: dict[str, list[Performance]]) -> Table:
    """Ratios to plain decoding with intervals, one row for each group or category."""
    configs = list(
        dict.fromkeys(p.config for group, rows in found.items() if group != SPOILED for p in rows)
    )
    shown = Table("prompts", title="speed relative to plain decoding (95 % interval)")
    for config in configs[1:]:
        shown.add_column(config, justify="right")
    shown.add_column("target of adaptive", justify="right")
    for group, rows in found.items():
        if group == SPOILED:
            continue
        for category in dict.fromkeys(p.category for p in rows):
            if category == group:
                continue  # a group of one category: the same as all of it
            cells = {p.config: cell(p) for p in rows if p.category == category}
            name = group if category == ALL else f"  {category}"
            goal = TARGETS[group] if category == ALL else FLOOR
            goal = goal if isinstance(goal, str) else f"{goal:.2f}"
            shown.add_row(name, *(cells.get(config, "") for config in configs[1:]), goal)
    return shown


def cell(row: Performance) -> str:
    """``1.23 (1.10–1.37)``, the interval where there is one."""
    if row.ratio_low != row.ratio_low:
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} ({row.ratio_low:.2f}–{row.ratio_high:.2f})"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--artifact", type=Path, default=Path("assets/smollm2-135m"))
    parser.add_argument("--drafter", action="append", metavar="NAME[=DIR]")
    parser.add_argument("--k", default="2,4,8,adaptive", metavar="K[,K...]")
    parser.add_argument("--prompts", type=positive, default=35)
    parser.add_argument("--max-new-tokens", type=positive, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    options.drafter = options.drafter or ["ngram"]
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the JSON."""
    options = parse(arguments)
    loaded = load_verifier(options.model, threads=options.threads)
    machine = machine_facts()
    words = ["benchmarks/policies.py", *(sys.argv[1:] if arguments is None else arguments)]
    result = {"command": shlex.join(["python", *words]), "machine": machine, "targets": TARGETS}
    found: dict[str, list[Performance]] = {}
    for group, (decoding, methods, prompts) in groups(loaded, options).items():
        found[group] = measure(decoding, methods, prompts, options.seed, group)
        machine["load_1m_end"] = load_1m()
        result["groups"] = {name: [p.row() for p in rows] for name, rows in found.items()}
        if options.json:  # after each group, so that a run that is stopped leaves something
            options.json.write_text(json.dumps(result, indent=1) + "\n")
    Console(width=160).print(table(found))
    for p in found[SPOILED]:
        if p.config != PLAIN and p.category == ALL:
            print(f"{p.config}: {cell(p)}, target of adaptive {FLOOR}")
    print(f"{machine['threads']} threads; load {machine['load_1m_start']} to {load_1m()}")


if __name__ == "__main__":
    start(main)
