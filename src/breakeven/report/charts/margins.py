"""How close the verifier's decisions are: the audit's histogram of top-two logit margins."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from breakeven.report.charts.frame import Frame
from breakeven.report.records import Audit


@dataclass(frozen=True, slots=True)
class Column:
    """One bin: equally wide on paper, whatever its edges."""

    x: float
    width: float
    y: float
    height: float
    text: str
    title: str
    divergences: int


@dataclass(frozen=True, slots=True)
class MarginChart:
    """What ``templates/charts/margins.svg.j2`` draws."""

    config: str
    frame: Frame
    columns: list[Column]
    edges: list[tuple[float, str]]


def margin_chart(audit: Audit, width: int) -> MarginChart | None:
    """None when the audit stored no margins."""
    margins = audit.margins
    if margins is None or not any(margins.counts):
        return None
    narrow = width < 500
    edges, counts = margins.edges, margins.counts
    box = (26, 12, 46, 12) if narrow else (26, 20, 46, 20)
    frame = Frame.of(width, 230 if narrow else 260, (0, len(counts)), (0, max(counts)), box)
    gaps = [d.gap for d in audit.divergences if d.gap is not None]
    where = [min(max(bisect_right(edges, gap) - 1, 0), len(counts) - 1) for gap in gaps]
    room = frame.x(1) - frame.x(0)
    columns = []
    for i, count in enumerate(counts):
        top = min(frame.y(count), frame.bottom - 2) if count else frame.bottom
        text = f"{count:,}".replace(",", " ") if room > 6.5 * len(str(count)) else ""
        title = f"margin {edges[i]:g} to {edges[i + 1]:g}: {count} decisions"
        height = round(frame.bottom - top, 1)
        columns.append(
            Column(frame.x(i) + 1, round(room - 2, 1), top, height, text, title, where.count(i))
        )
    every = max(1, round((34 if narrow else 42) / room + 0.49))
    shown = [(frame.x(i), _edge(edge)) for i, edge in enumerate(edges) if i % every == 0]
    return MarginChart(audit.config, frame, columns, shown)


def _edge(edge: float) -> str:
    return (
        f"{edge:.0e}".replace("e-0", "e-").replace("e+0", "e") if 0 < edge < 0.001 else f"{edge:g}"
    )
