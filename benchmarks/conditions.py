"""What every benchmark shares: the verifier, prompts, facts of the machine, targets, the JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.command import Parser, positive
from breakeven.measure.machine import load_1m, machine_facts


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that was measured (None: nothing to compare with) and what it is to reach."""

    what: str
    measured: float | None
    goal: float
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """Whether it is reached."""
        if self.measured is None:
            return None
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal


def goals(targets: Iterable[Target]) -> Table:
    """Every target beside what was measured."""
    table = Table("target", title="targets")
    for column in ("measured", "goal", ""):
        table.add_column(column, justify="right")
    words = {True: "met", False: "missed", None: "not measured"}
    for target in targets:
        goal = f"{'≥' if target.at_least else '≤'} {target.goal:g}"
        table.add_row(target.what, number(target.measured), goal, words[target.met])
    return table


def number(figure: float | None) -> str:
    """Three significant digits, or a dash.

    >>> number(1.2345), number(0.0123), number(None)
    ('1.23', '0.0123', '–')
    """
    return "–" if figure is None else f"{figure:.3g}"


class Report:
    """Facts of the machine from the start of a benchmark, and the file at its end."""

    def __init__(self, options: argparse.Namespace, warning: str | None = None) -> None:
        """``warning`` says what disturbed the run, if anything did."""
        self.options, self.warning, self.machine = options, warning, machine_facts()

    def write(
        self, definitions: Mapping[str, str], targets: Iterable[Target], **results: Any
    ) -> None:
        """Print load and threads; write ``--json`` if it was asked for."""
        self.machine["load_1m_end"] = load_1m()
        m = self.machine
        print(
            f"{m['threads']} threads; load {m['load_1m_start']} to {m['load_1m_end']}"
            + (f"; {self.warning}" if self.warning else "")
        )
        if self.options.json:
            given = {k: str(v) if isinstance(v, Path) else v for k, v in vars(self.options).items()}
            content = {
                "command": shlex.join(sys.argv),
                "options": given,
                "machine": self.machine,
                "warning": self.warning,
                "definitions": dict(definitions),
                "targets": [{**asdict(target), "met": target.met} for target in targets],
                **results,
            }
            self.options.json.write_text(json.dumps(content, indent=1, default=asdict) + "\n")


def parser(description: str, tokens: int) -> Parser:
    """Options that every decoding benchmark has."""
    made = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="smollm2-135m")
    made.add_argument("--artifact", type=Path, default=Path("assets/smollm2-135m"))
    made.add_argument("--tokens", type=positive, default=tokens, help="new tokens of each answer")
    made.add_argument("--threads", type=positive, help="default: as many as physical cores")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--json", type=Path, help="write everything measured to this file")
    return made
