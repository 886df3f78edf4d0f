"""Bind runs, charts and words into one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from breakeven import __version__
from breakeven.errors import DataError, OutputExistsError
from breakeven.files import write_whole
from breakeven.report.categories import category_widths
from breakeven.report.charts.cost import cost_chart
from breakeven.report.charts.frame import NARROW, WIDE
from breakeven.report.charts.margins import margin_chart
from breakeven.report.charts.price import price_chart
from breakeven.report.charts.ratios import category_charts, ratio_chart
from breakeven.report.charts.speed import speed_chart
from breakeven.report.charts.survival import FEWEST, survival_chart
from breakeven.report.compare import check_comparable, machine_notes
from breakeven.report.download import downloads
from breakeven.report.entries import Entry, entries_of
from breakeven.report.findings import CLASSES, audit_summary, verdict_of, warnings_of
from breakeven.report.outlook import Outlook, outlooks
from breakeven.report.run import Note, Run, load_run
from breakeven.report.wording import FILTERS, definitions

Chart = Any
"""A laid-out chart: each kind has its own class in ``charts/``."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart in its two layouts, with what explains it."""

    id: str
    template: str
    wide: Chart
    narrow: Chart
    run: Run | None = None


@dataclass
class Report:
    """Everything the templates need."""

    runs: list[Run]
    entries: list[Entry]
    notes: list[tuple[Run, Note]] = field(default_factory=list)

    def figure(self, name: str, draw: Callable[[Sequence[Entry], int], Chart]) -> Figure | None:
        """A chart over all entries, or None when there is nothing to draw."""
        wide = draw(self.entries, WIDE)
        return wide and Figure(name, f"charts/{name}.svg.j2", wide, draw(self.entries, NARROW))

    @property
    def costs(self) -> list[Figure]:
        """The cost curve of every run that has one."""
        found = []
        for i, run in enumerate(self.runs):
            if run.curve is not None:
                own = [entry for entry in self.entries if entry.run is run]
                wide, narrow = (cost_chart(run.curve, own, width) for width in (WIDE, NARROW))
                found.append(Figure(f"cost{i}", "charts/cost.svg.j2", wide, narrow, run))
        return found

    @property
    def margins(self) -> list[Figure]:
        """The margins of every run's largest audit."""
        found = []
        for i, run in enumerate(self.runs):
            audits = [audit for audit in run.audits if audit.margins]
            if not audits:
                continue
            largest = max(audits, key=lambda audit: (len(audit.divergences), audit.tokens))
            wide, narrow = (margin_chart(largest, width) for width in (WIDE, NARROW))
            if wide is not None:
                found.append(Figure(f"margins{i}", "charts/margins.svg.j2", wide, narrow, run))
        return found

    @property
    def outlooks(self) -> list[tuple[Entry, Outlook]]:
        """What each configuration would be worth under other prices."""
        found = []
        for run in self.runs:
            try:
                by_config = {outlook.config: outlook for outlook in outlooks(run)}
            except DataError:  # the run has no prices, and its notes say so
                continue
            own = [entry for entry in self.entries if entry.run is run]
            found += [(e, by_config[e.config]) for e in own if e.config in by_config]
        return found


@dataclass(frozen=True, slots=True)
class Written:
    """What :func:`write_report` did: the page, and what it lacks."""

    path: Path
    bytes: int
    verdicts: list[str]
    notes: list[str]


def load_report(folders: Sequence[Path]) -> Report:
    """Read the run folders; :class:`DataError` when they cannot be compared."""
    unique = {folder.resolve(): folder for folder in folders}
    runs = [load_run(folder) for folder in unique.values()]
    check_comparable(runs)
    labels = [run.label for run in runs]
    for run in runs:
        if labels.count(run.label) > 1:
            run.label = str(run.path)
    notes = [(run, note) for run in runs for note in run.notes]
    if len(runs) > 1:
        notes += [(runs[0], note) for note in machine_notes(runs)]
    return Report(runs, entries_of(runs), notes)


def render(report: Report) -> str:
    """The page as HTML text."""
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            version=__version__,
            speed=report.figure("speed", speed_chart),
            price=report.figure("price", price_chart),
            survival=report.figure("survival", survival_chart),
            ratios=report.figure("ratios", ratio_chart),
            fewest=FEWEST,
            categories=category_charts(report.entries, NARROW),
            category_widths=category_widths(report.entries),
            verdicts=[(run, verdict_of(run)) for run in report.runs],
            audits=[(run, audit_summary(run)) for run in report.runs],
            warnings=[(run, text) for run in report.runs for text in warnings_of(run)],
            files=[(run, downloads(run)) for run in report.runs],
            definitions=definitions(report.runs[0]),
            classes=CLASSES,
            several=len(report.runs) > 1,
        )
    )


@cache
def environment() -> Environment:
    """The templates, with the filters of ``wording.py``."""
    environment = Environment(
        loader=PackageLoader("breakeven.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


def write_report(folders: Sequence[Path], out: Path, *, force: bool = False) -> Written:
    """Write the page for one or more run folders.

    Raises :class:`DataError` when a folder is no run or two cannot be compared, and
    :class:`OutputExistsError` when ``out`` exists and ``force`` is not given.
    """
    if out.is_dir():
        raise OutputExistsError(
            f"{out}: is a folder; name a file, e.g. --out {out / 'report.html'}"
        )
    if out.exists() and not force:
        raise OutputExistsError(f"{out}: exists already; give --force to replace it")
    report = load_report(folders)
    text = render(report)
    write_whole(out, text)
    verdicts = [verdict_of(run).sentence for run in report.runs]
    notes = [f"{run.label}/{note.file}: {note.text}" for run, note in report.notes]
    return Written(out, out.stat().st_size, verdicts, notes)
