"""The page in a real browser: quiet, offline, readable on a phone. Skipped without Chromium."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.cost.calibration import Calibration, DraftPrice
from breakeven.cost.curve import CostCurve, Point
from breakeven.measure.calibration.acceptance import Acceptance
from breakeven.measure.calibration.check import Checked
from breakeven.report.calibration import write_page
from breakeven.report.page import write_report
from chromium import PROGRAM, Browser, browser
from fake_run import FAKES, write_run

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no Chromium here")

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
VISIBLE = """[...document.querySelectorAll('svg.chart')].filter(s => s.clientWidth)"""
CLIPPED = f"""{VISIBLE}.flatMap(s => [...s.querySelectorAll('text')].filter(t => {{
  const [a, b] = [t.getBoundingClientRect(), s.getBoundingClientRect()];
  return a.left < b.left - 12 || a.right > b.right + 12 || a.right > innerWidth;
}}).map(t => t.textContent))"""
CROSSING = f"""{VISIBLE}.flatMap(s => {{
  const boxes = [...s.querySelectorAll('.label, .value')].map(t => [t, t.getBBox()]);
  return boxes.flatMap(([t, a], i) => boxes.slice(i + 1).filter(([u, b]) =>
    a.x < b.x + b.width && b.x < a.x + a.width &&
    a.y + 3 < b.y + b.height && b.y + 3 < a.y + a.height
  ).map(([u]) => t.textContent + ' / ' + u.textContent));
}})"""

NAMED_OVER = f"""{VISIBLE}.flatMap(s => {{
  const boxes = kind => [...s.querySelectorAll(kind)].map(t => [t, t.getBoundingClientRect()]);
  return boxes('.axis-name').flatMap(([t, a]) => boxes('.tick').filter(([u, b]) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  ).map(([u]) => t.textContent + ' / ' + u.textContent));
}})"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    one = write_run(folder / "one")
    two = write_run(folder / "another-with-a-long-name", FAKES[:3], seed=2)
    single, both = folder / "one.html", folder / "both.html"
    points = CostCurve.read(one / "cost_curve.csv").points
    CostCurve(tuple(p for p in points if p.rows <= 4)).write(
        one / "cost_curve.csv"
    )  # ticks of some letters
    write_report([one], single)
    write_report([one, two], both)
    calibrated = folder / "calibration.html"
    write_page(known(), calibrated, Acceptance((0.8, 0.6, 0.5)), list(checks()))
    return {"one": single, "both": both, "calibration": calibrated}


def known() -> Calibration:
    """A calibration with drafters that need little, much and more than is possible."""
    seconds = {1: 0.018, 2: 0.0185, 4: 0.0205, 8: 0.029, 17: 0.045, 64: 0.14}
    curves = {
        batch: CostCurve(
            tuple(
                Point(context, width, scale * s, 0.97 * scale * s, 1.05 * scale * s)
                for context, more in ((32, 1.0), (128, 1.03), (512, 1.2))
                for width, s in seconds.items()
                for scale in (batch**0.5 * more,)
            )
        )
        for batch in (1, 4)
    }
    drafts = {"ngram": (0.0, 0.0), "fastmtp": (0.0006, 0.0012), "layer-skip": (0.0, 0.011),
              "peft-bd": (0.023, 0.0004), "peft-bd-gated": (0.022, 0.0004)}  # fmt: skip
    prices = {
        name: {
            k: DraftPrice(k + 1 - free, {1: fix + k * each}, {1: 0.001})
            for k in ((2, 4) if free else (1, 2, 4))
        }
        for name, (fix, each) in drafts.items()
        for free in (int(name == "peft-bd-gated"),)
    }
    return Calibration(
        {"cpu": "A processor with quite a long name, 2.45 GHz", "threads": 2},
        {"name": "smollm2-135m", "weights_sha256": "a" * 64}, "native", 2, 0.0185, 0.0006, 128,
        curves, prices, {"eager": {1: curves[4]}}, command="breakeven calibrate",
        warnings=("other processes kept 0.8 of 2 cores busy during the run",),
    )  # fmt: skip


def checks() -> Iterator[Checked]:
    for name, prices in known().drafters.items():
        for k in prices:
            yield Checked(f"{name}-k{k}", k, 2.28, 2.3, 1.5, 1.47)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 760, 1280])
@pytest.mark.parametrize("name", ["one", "both", "calibration"])
def test_quiet_offline_and_no_wider_than_the_screen(
    tab: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    tab.open(pages[name], width, scheme=scheme)
    assert tab.evaluate(OVERFLOW) == 0
    assert tab.evaluate(CLIPPED) == []
    assert tab.evaluate(CROSSING) == []
    assert tab.evaluate(NAMED_OVER) == []
    assert tab.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    asked = [event["request"]["url"] for event in tab.seen("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1


def test_the_scheme_of_the_system_is_followed(tab: Browser, pages: dict[str, Path]) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        tab.open(pages["one"], 1280, scheme=scheme)
        colours.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_a_heading_sorts_its_table(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["one"], 1280)
    column = "[...document.querySelector('.sortable tbody').rows].map(r => r.cells[1].innerText)"
    press = "document.querySelectorAll('.sortable th button')[1].click()"
    tab.evaluate(press)
    falling = [float(text) for text in tab.evaluate(column)]
    assert falling == sorted(falling, reverse=True)
    tab.evaluate(press)
    assert [float(text) for text in tab.evaluate(column)] == falling[::-1]
    assert tab.evaluate("document.querySelectorAll('.sortable th')[1].ariaSort") == "ascending"


def test_a_calibration_offers_its_data_and_sorts(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["calibration"], 1280)
    link = "document.querySelector('a[download=\"calibration.json\"]').href.split(',')[1]"
    data = json.loads(base64.b64decode(tab.evaluate(link)))
    assert Calibration.of(data) == known()
    column = "[...document.querySelector('#need tbody').rows].map(r => r.cells[2].innerText)"
    tab.evaluate("document.querySelectorAll('#need th button')[2].click()")
    needs = [float(text) for text in tab.evaluate(column)]
    assert needs == sorted(needs, reverse=True)
    assert len(needs) == 14
