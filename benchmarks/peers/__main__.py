"""Install other engines and measure them beside breakeven, on the same weights and prompts.

    python -m benchmarks.peers --json peers.json
    python -m benchmarks.peers --peers llama.cpp openvino --prompts 6 --minutes 4
    python -m benchmarks.peers --install-only

Each engine lives in a virtual environment of its own below ``--folder`` (made once, 10–20
minutes and 6 GB for all). All compute in fp32 with ``--threads`` threads; one request runs at a
time, engines take turns request by request. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.command import Parser, positive, start
from benchmarks.conditions import Report, goals
from benchmarks.peers.agreement import agreements, compare
from benchmarks.peers.catalogue import OURS, PEERS
from benchmarks.peers.environments import InstallError, install, interpreter
from benchmarks.peers.race import Outcome, Plan, race
from benchmarks.peers.seat import Entry, Seat
from benchmarks.peers.standings import Standings, passes, rates
from benchmarks.peers.workers.channel import Task
from breakeven.data.artifact import load_artifact
from breakeven.measure.machine import usable_cores
from breakeven.measure.neighbours import busy_now
from breakeven.measure.prompts import choose
from breakeven.verifier.load import Loaded, load_verifier
from breakeven.verifier.places import cache_folder
from breakeven.verifier.sources import BUNDLED, bundled_file, model_folder

DEFINITIONS = {
    "seconds": "wall time of one request in the worker, prompt included",
    "tokens/s": "new tokens ÷ seconds; median over prompts",
    "ratio": "median over rounds of the ratio within the round",
    "pass": "one pass of so many rows over the context, arg-max of every row included",
    "batch": "all prompts of the crowd in one call; tokens ÷ seconds of the call",
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--peers", nargs="+", choices=[n for n in PEERS if n != OURS], metavar="NAME",
        default=[n for n in PEERS if n != OURS], help="which engines (all)")  # fmt: skip
    add("--folder", type=Path, default=cache_folder() / "peers", help="where they are installed")
    add("--pip-args", default="", help="passed to pip, e.g. an index with the CPU build of torch")
    add("--install-only", action="store_true", help="install and stop")
    add("--model", choices=BUNDLED, default="smollm2-135m")
    add("--artifact", type=Path, default=Path("assets/smollm2-135m"), help="the prompts' artifact")
    add("--drafter", action="append", default=[], metavar="NAME=DIR", help="ours, trained")
    add("--threads", type=positive, default=usable_cores())
    add("--prompts", type=positive, default=6)
    add("--tokens", type=positive, default=96, help="new tokens of each answer")
    add("--draft-tokens", type=positive, default=3, help="K of prompt lookup, in every engine")
    add("--ngram", type=positive, default=3, help="longest n-gram looked up")
    add("--widths", type=positive, nargs="*", default=[1, 4, 8, 17])
    add("--batch", type=int, default=16, help="prompts at once; 0: leave that out")
    add("--minutes", type=float, default=30.0, help="start no round after so long")
    add("--seed", type=int, default=0)
    add("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, measure, print the tables, write the JSON."""
    options = parse(arguments)
    missing = installed(options)
    if options.install_only:
        return
    loaded = load_verifier(options.model, threads=options.threads)
    rows = load_artifact(options.artifact, loaded.identity).rows("test")
    drawn = choose(rows, max(options.prompts, options.batch), options.seed)
    plan = planned(options, [list(row.prompt_ids) for row in drawn])
    del loaded  # its memory is needed
    report = Report(options, busy_now())
    outcome = race(entries(options, missing), plan, lambda entry: seated(entry, options))
    outcome.left.update(missing)
    conclude(outcome, plan, report, options)


def installed(options: argparse.Namespace) -> dict[str, str]:
    """Install what is missing; returns the peers that cannot be had, and why."""
    missing = {}
    for name in options.peers:
        try:
            install(PEERS[name], options.folder, options.pip_args)
            print(f"{name}: installed in {options.folder / name}", file=sys.stderr)
        except InstallError as error:
            missing[name] = f"not installed: {error}"
            print(f"{name}: left out, {missing[name]}", file=sys.stderr)
    return missing


def planned(options: argparse.Namespace, prompts: list[list[int]]) -> Plan:
    """The requests."""
    return Plan(
        prompts[: options.prompts],
        options.tokens,
        options.widths,
        crowd=prompts[: options.batch],
        limit_s=60 * options.minutes,
        seed=options.seed,
    )


def entries(options: argparse.Namespace, missing: dict[str, str]) -> list[Entry]:
    """Every mode of every engine that is there, ours and its trained drafters first."""
    taking_part = [OURS, *(name for name in options.peers if name not in missing)]
    found = [Entry(PEERS[name], mode) for name in taking_part for mode in PEERS[name].modes]
    return [*found, *(Entry(PEERS[OURS], drafter) for drafter in options.drafter)]


def seated(entry: Entry, options: argparse.Namespace) -> Seat:
    """A worker for an entry."""
    work = options.folder / "models"
    work.mkdir(parents=True, exist_ok=True)
    task = Task(
        mode=entry.mode,
        model=model_folder(options.model),
        gguf=bundled_file(options.model),
        work=work,
        threads=options.threads,
        draft_tokens=options.draft_tokens,
        longest_ngram=options.ngram,
        batch=max(1, options.batch),
        positions=1024,
        drafter=entry.mode if "=" in entry.mode else "",
    )
    log = options.folder / "logs" / f"{entry.name.replace('/', '-').replace(' ', '-')}.log"
    return Seat(entry, interpreter(entry.peer, options.folder), task, log)


def conclude(
    outcome: Outcome,
    plan: Plan,
    report: Report,
    options: argparse.Namespace,
) -> None:
    """Tables for people, JSON for machines."""
    loaded: Loaded = load_verifier(options.model, threads=options.threads)
    agreed = compare(outcome.records, plan.prompts, loaded.verifier, loaded.eos)
    standings, console = Standings(outcome.records), Console()
    targets = standings.targets()
    console.print(rates(standings, "decode", "one request at a time"))
    if standings.entries("batch"):
        console.print(rates(standings, "batch", f"{len(plan.crowd)} requests at once"))
    if standings.widths():
        console.print(passes(standings))
    console.print(goals(targets), agreements(agreed))
    for name, reason in outcome.left.items():
        console.print(f"{name} left: {reason}", highlight=False, soft_wrap=True)
    report.write(
        DEFINITIONS,
        targets,
        engines=outcome.engines,
        left=outcome.left,
        agreement=agreed,
        records=outcome.rows(),
    )


if __name__ == "__main__":
    start(main)
