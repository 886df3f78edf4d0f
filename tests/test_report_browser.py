"""The page in a real browser: quiet, offline, readable on a phone. Skipped without Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
    write_report([one], single)
    write_report([one, two], both)
    return {"one": single, "both": both}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 760, 1280])
@pytest.mark.parametrize("name", ["one", "both"])
def test_quiet_offline_and_no_wider_than_the_screen(
    tab: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    tab.open(pages[name], width, scheme=scheme)
    assert tab.evaluate(OVERFLOW) == 0
    assert tab.evaluate(CLIPPED) == []
    assert tab.evaluate(CROSSING) == []
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
