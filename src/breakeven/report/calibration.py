"""``calibration.html``: the acceptance each drafter needs here, and the cost curves behind it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven import __version__
from breakeven.cost.breakeven import RoundCost
from breakeven.cost.calibration import Calibration
from breakeven.cost.curve import CostCurve
from breakeven.files import write_whole
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.check import Checked, summary
from breakeven.measure.calibration.tables import rate_needed, sentences
from breakeven.measure.calibration.walkers import NOTHING
from breakeven.report.charts.cost import cost_chart
from breakeven.report.charts.foretold import foretold_chart
from breakeven.report.charts.frame import NARROW, WIDE
from breakeven.report.charts.need import need_chart
from breakeven.report.entries import Mark
from breakeven.report.page import Figure, environment


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One drafter and K in the table."""

    drafter: str
    k: int
    cost: RoundCost
    rate: str


def write_page(
    found: Calibration,
    out: Path,
    asked: Acceptance | None = None,
    checked: Sequence[Checked] = (),
) -> None:
    """Write the page in one step."""
    write_whole(out, render(found, asked, checked))


def render(
    found: Calibration, asked: Acceptance | None = None, checked: Sequence[Checked] = ()
) -> str:
    """The page as HTML text."""
    marks = {name: Mark.number(i) for i, name in enumerate((*found.drafters, NOTHING))}
    wide = need_chart(found, WIDE)
    need = wide and Figure("need", "charts/need.svg.j2", wide, need_chart(found, NARROW))
    foretold = None
    if checked:
        drawn = foretold_chart(checked, marks, WIDE)
        narrow = foretold_chart(checked, marks, NARROW)
        foretold = Figure("foretold", "charts/foretold.svg.j2", drawn, narrow)
    data = base64.b64encode(
        json.dumps(found.row(), ensure_ascii=False).encode(errors="replace")
    ).decode()
    return (
        environment()
        .get_template("calibration.html.j2")
        .render(
            found=found,
            version=__version__,
            headline=next(sentences(found, asked)),
            need=need,
            foretold=foretold,
            marks=marks,
            prices=list(_prices(found)),
            curves=list(_curves(found)),
            checked=checked,
            summary=summary(checked) if checked else "",
            rates=", ".join(f"{rate:g}" for rate in asked.rates) if asked else "",
            source=asked.source if asked else "",
            data=f"data:application/json;base64,{data}",
        )
    )


def _prices(found: Calibration) -> Iterator[PriceRow]:
    for name in found.drafters:
        for k in found.draft_lengths(name):
            yield PriceRow(name, k, found.round_cost(name, k), rate_needed(found, name, k))


def _curves(found: Calibration) -> Iterator[tuple[Figure, str]]:
    """Every batch of the main mode, then the other modes."""
    named: list[tuple[str, CostCurve]] = [
        (f"{found.mode}, {batch} request{'s' if batch > 1 else ''}", curve)
        for batch, curve in sorted(found.curves.items())
    ]
    named += [(f"{mode}, 1 request", curves[1]) for mode, curves in found.other_modes.items()]
    for i, (name, curve) in enumerate(named):
        wide, narrow = (cost_chart(curve, [], width) for width in (WIDE, NARROW))
        yield Figure(f"cost{i}", "charts/cost.svg.j2", wide, narrow), name
