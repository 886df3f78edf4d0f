"""What a drafter's drafts are worth on held-out prompts: acceptance only, no timing.

    python -m benchmarks.acceptance peft-bd-gated=runs/gated -k 4 --write-profile

Decodes test prompts of the artifact greedily, each alone, and prints acceptance length, survival
and a bootstrap interval over prompts. Every answer is held against the verifier's own
continuation in the artifact. ``--option groups=2`` sets an option of the drafters.
``--write-profile`` puts ``speculation_profile.json`` beside the drafter's weights. Needs no quiet
machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.command import Parser, positive, start
from breakeven.config import parse_setting
from breakeven.cost.profile import PROFILE_FILE
from breakeven.data.artifact import Row, load_artifact
from breakeven.drafters.base import Drafter
from breakeven.drafters.fused import FUSED_PROFILE, Fused
from breakeven.drafters.registry import check, create
from breakeven.measure.acceptance import ALL, acceptance_table
from breakeven.measure.configuration import Configuration, parse_drafter
from breakeven.measure.description import Plan
from breakeven.measure.profiles import speculation_profile
from breakeven.measure.prompts import choose
from breakeven.measure.records import Record
from breakeven.measure.results import write_json
from breakeven.measure.statistics import paired_interval
from breakeven.measure.trial import Decoding, Method
from breakeven.progress import meter
from breakeven.verifier.load import Loaded, load_verifier

WIDE = 120  # columns, also where the output is no terminal


@dataclass(frozen=True, slots=True)
class Found:
    """One drafter's records, its profile, and how many answers were the artifact's own."""

    name: str
    records: list[Record]
    profile: dict[str, Any]
    equal: int

    @property
    def interval(self) -> tuple[float, float, float]:
        """Acceptance length with its 95 % interval over prompts."""
        with_rounds = [r for r in self.records if r.rounds]
        committed = np.array([float(r.committed) for r in with_rounds])
        found = paired_interval(committed, np.array([float(r.rounds) for r in with_rounds]))
        return found.value, found.low, found.high


def decode(
    loaded: Loaded,
    drafter: Drafter,
    configuration: Configuration,
    rows: Sequence[Row],
    plan: Plan,
) -> Found:
    """Decode the prompts of ``rows`` one by one."""
    decoding = Decoding(loaded.verifier, loaded.eos, plan.max_new_tokens)
    method = Method(configuration.name, drafter, configuration.k)
    records, equal = [], 0
    with meter(configuration.name, len(rows)) as bar:
        for row in rows:
            completion, ledger = decoding.run(method, row)
            records.append(Record.of(configuration.name, 0, row, completion, ledger))
            equal += tuple(completion.tokens) == row.continuation_ids[: plan.max_new_tokens]
            bar.advance()
    table = acceptance_table(records, [configuration.name])
    description = plan.describe(loaded, [method])
    profile = speculation_profile(configuration, table, records, description)
    return Found(configuration.name, records, profile, equal)


def table(results: Sequence[Found]) -> Table:
    """One line per drafter and category, all prompts first."""
    title = "AL: committed tokens / verify passes, bonus included"
    shown = Table("drafter", "category", title=title)
    for name in ("prompts", "AL", "95 %", "survival", "as the verifier"):
        shown.add_column(name, justify="right")
    for one in results:
        value, low, high = one.interval
        survival = " ".join(f"{s:.3f}" for s in one.profile["marginal_accept_rates"])
        total = len(one.records)
        shown.add_row(
            one.name, ALL, str(total), f"{value:.3f}", f"{low:.3f}–{high:.3f}", survival,
            f"{one.equal} of {total}",
        )  # fmt: skip
        for category, rates in one.profile["per_category"].items():
            number = sum(r.category == category for r in one.records)
            length = f"{rates['mean_accept_length']:.3f}"
            shown.add_row("", category, str(number), length, "", "", "")
    return shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("drafters", nargs="+", metavar="NAME[=FOLDER]")
    parser.add_argument("-k", "--num-speculative-tokens", type=positive, default=4, dest="k")
    parser.add_argument("--verifier", default="smollm2-135m")
    parser.add_argument("--artifact", type=Path, default=Path("assets/smollm2-135m"))
    parser.add_argument("--split", default="test")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--prompts", type=positive, help="default: all of the split")
    parser.add_argument("--max-new-tokens", type=positive, default=128)
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--write-profile", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def chosen_options(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs, values as in YAML.

    >>> chosen_options(["groups=2", "bonus=false"])
    {'groups': 2, 'bonus': False}
    """
    return dict(parse_setting(text, "--option", "KEY=VALUE, e.g. groups=2") for text in texts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Decode with every drafter, print the table, write what was asked for."""
    options = parse(arguments)
    own = chosen_options(options.option)
    for name, folder in map(parse_drafter, options.drafters):
        check(name, folder, own)
    loaded = load_verifier(options.verifier, threads=options.threads)
    rows = load_artifact(options.artifact, loaded.identity).rows(options.split)
    chosen = choose(rows, options.prompts or len(rows))
    results = []
    for text in options.drafters:
        name, folder = parse_drafter(text)
        configuration = Configuration(name, options.k, folder)
        plan = Plan(
            chosen,
            [configuration],
            repeats=1,
            max_new_tokens=options.max_new_tokens,
            artifact=str(options.artifact),
            split=options.split,
        )
        drafter = create(name, loaded, folder, **own)
        found = decode(loaded, drafter, configuration, chosen, plan)
        results.append(found)
        if options.write_profile and folder is not None:
            file = FUSED_PROFILE if isinstance(drafter, Fused) else PROFILE_FILE
            write_json(folder / file, found.profile)
    console = Console()
    console.width = max(console.width, WIDE)
    console.print(table(results))
    if options.json:
        options.json.write_text(json.dumps([r.profile for r in results], indent=1) + "\n")


if __name__ == "__main__":
    start(main)
