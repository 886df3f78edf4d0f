"""Figure 1: throughput against accepted tokens, the paper's points and ours on one scale.

Speeds are in units of each setting's own plain decoding. Two lines to hold them against: plain
decoding, and A / 2, the speed of two passes a round that cost one plain step each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from breakeven.cost.oracle import PAPER
from breakeven.paper.published import PUBLISHED
from breakeven.paper.reading import PASSES
from breakeven.report.charts.frame import Frame, left_margin, rounded
from breakeven.report.charts.labels import Box, Label, along, place, place_on_line
from breakeven.report.entries import Mark

PAPER_MARK, ENGINE_MARK, LOOP_MARK = (Mark(6, "circle"), Mark(0, "square"), Mark(1, "triangle"))
LEGEND = (
    (PAPER_MARK, "paper, engine"),
    (ENGINE_MARK, "here, engine"),
    (LOOP_MARK, "here, transformers loop"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration: tokens a round, speed over plain decoding's, tokens a second."""

    name: str
    source: str
    committed: float
    ratio: float
    tokens_per_s: float
    mark: Mark

    @property
    def title(self) -> str:
        """What a pointer over the mark says."""
        return (
            f"{self.name}, {self.source}: {self.committed:.2f} tokens a round, "
            f"{self.tokens_per_s:.1f} tok/s, {self.ratio:.2f} of plain decoding"
        )


@dataclass(frozen=True, slots=True)
class Figure1:
    """What ``templates/charts/throughput.svg.j2`` draws."""

    frame: Frame
    dots: list[tuple[float, float, Point]]
    labels: list[Label]
    plain: Label
    plain_y: float
    ideal: tuple[float, float, float, float]
    ideal_label: Label


def points(results: Mapping[str, Mapping[str, Any]]) -> list[Point]:
    """The paper's points, then ours from the stages that were run."""
    published = (
        ("FastMTP", PAPER.fastmtp_committed, PAPER.fastmtp),
        ("PEFT-BD", PAPER.peft_bd_committed, PAPER.peft_bd),
        ("two steps", PAPER.two_step_committed, PAPER.two_step),
    )
    found = [Point(n, "paper", a, x / PAPER.plain, x, PAPER_MARK) for n, a, x in published]
    sources = [("here", results.get("bench"), ENGINE_MARK)]
    if "loop" in results:
        sources.append(("here, loop", results["loop"]["paths"]["loop"], LOOP_MARK))
    names = {"peft-bd": "PEFT-BD", "fastmtp": "FastMTP", "anchored": "anchored"}
    for source, result, mark in sources:
        for row in result["figures"] if result else ():
            if row["config"] in names and row["ratio"] is not None:
                speed = row["speed"]["mean"]
                name = names[row["config"]]
                found.append(Point(name, source, row["committed"], row["ratio"], speed, mark))
    return found


def figure1(found: list[Point], width: int) -> Figure1:
    """Laid out for a screen of ``width`` pixels."""
    narrow = width < 500
    furthest = max(PUBLISHED.loop_anchored, *(p.committed for p in found)) * 1.12
    highest = max(furthest / PASSES, 1.2, *(p.ratio for p in found))
    up = rounded(0.0, highest)
    left = left_margin(up, 5, named=not narrow)
    margins = (18, 12, 44, left) if narrow else (16, 14, 46, left)
    frame = Frame.of(width, 320 if narrow else 420, (0.9, furthest), up, margins)
    dots = [(frame.x(p.committed), frame.y(p.ratio), p) for p in found]
    plain_y = frame.y(1.0)
    ideal = (frame.left, frame.y(0.9 / PASSES), frame.right, frame.y(furthest / PASSES))
    bounds = Box(frame.left + 4, frame.top, frame.right - 4, frame.bottom - 2)
    across = Box(frame.left, plain_y - 3, frame.right, plain_y + 3)
    obstacles = [*along(*ideal), across]
    names = [(x, y, f"{p.name}, {p.source}") for x, y, p in dots]
    labels = place([] if narrow else names, obstacles, bounds)
    covered = [*obstacles, *(Box.around(x, y, 8) for x, y, _ in dots), *(t.box for t in labels)]
    plain = place_on_line("plain decoding", plain_y, covered, bounds)
    end = Label(
        "two passes at plain-step price: A / 2" if not narrow else "A / 2",
        frame.right - 8,
        max(frame.top + 12, ideal[3] - 6),
        "end",
    )
    return Figure1(frame, dots, labels, plain, plain_y, ideal, end)
