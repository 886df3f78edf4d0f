"""The cost curve: seconds of a verifier pass of W rows, by width and context length.

A round with K drafts pays for a pass of about K + 1 rows where plain decoding pays for one. How
much dearer the wide pass is decides whether speculation can pay at all, and no formula knows it:
it depends on the machine, the kernels and the execution mode. So it is measured
(``cost_curve.csv`` of a benchmark run) and interpolated here.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

from breakeven.errors import DataError

LONGEST = 1e6
"""Seconds, eleven days: what takes longer is no pass but a broken file."""
COLUMNS = ("rows", "context", "seconds", "low", "high", "relative")
"""Header of ``cost_curve.csv``; ``relative`` is to one row at the same context."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One measured width: ``seconds`` is the median, ``low`` and ``high`` the quartiles."""

    context: int
    rows: int
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class CostCurve:
    """Measured seconds of a W-row pass, linear between measured widths and contexts.

    Beyond the widest measured pass the last slope goes on (never downwards); below the shortest
    and above the longest measured context the nearest one is used. Each context needs a one-row
    point, the unit of :meth:`relative`.

    >>> curve = CostCurve.of({1: 0.024, 4: 0.030, 8: 0.038})
    >>> round(curve.seconds(6), 4), round(curve.relative(4), 3), round(curve.relative(10), 3)
    (0.034, 1.25, 1.75)
    """

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise DataError("cost curve: no points; measure it with `breakeven bench`")
        for point in self.points:
            if point.rows < 1 or not 0 < point.seconds < LONGEST:
                raise DataError(
                    f"cost curve: {point.rows} rows in {point.seconds} s;"
                    " rows are at least 1 and seconds above 0, below a million"
                )
            if not 0 <= point.low <= point.high < LONGEST:
                raise DataError(
                    f"cost curve: {point.rows} rows in {point.low} to {point.high} s;"
                    " quartiles are two numbers from 0 on, the lower first"
                )
        for context, (widths, _) in self._by_context.items():
            if widths[0] != 1:
                raise DataError(
                    f"cost curve: context {context} has no one-row pass; measure width 1 as well"
                )

    @classmethod
    def of(cls, seconds: dict[int, float], context: int = 0) -> CostCurve:
        """A curve at one context from ``{rows: seconds}``, without spread."""
        return cls(tuple(Point(context, w, s, s, s) for w, s in sorted(seconds.items())))

    @classmethod
    def from_samples(cls, samples: Iterable[tuple[int, int, float]]) -> CostCurve:
        """Median and quartiles of repeated ``(rows, context, seconds)`` measurements.

        >>> curve = CostCurve.from_samples([(1, 64, 2.0), (1, 64, 4.0), (1, 64, 3.0)])
        >>> curve.points[0].seconds, curve.points[0].low, curve.points[0].high
        (3.0, 2.5, 3.5)
        """
        groups: dict[tuple[int, int], list[float]] = {}
        for rows, context, seconds in samples:
            groups.setdefault((context, rows), []).append(seconds)
        return cls(tuple(_summary(*key, times) for key, times in sorted(groups.items())))

    @cached_property
    def _by_context(self) -> dict[int, tuple[list[int], list[float]]]:
        table: dict[int, tuple[list[int], list[float]]] = {}
        for point in sorted(self.points):
            widths, seconds = table.setdefault(point.context, ([], []))
            widths.append(point.rows)
            seconds.append(point.seconds)
        return table

    @property
    def contexts(self) -> tuple[int, ...]:
        """Measured context lengths, ascending."""
        return tuple(self._by_context)

    @property
    def widths(self) -> tuple[int, ...]:
        """Measured widths, ascending, over all contexts."""
        return tuple(sorted({point.rows for point in self.points}))

    def seconds(self, rows: int, context: int | None = None) -> float:
        """Seconds of a pass of ``rows`` rows (0 rows cost nothing).

        ``context`` is the cached length it attends to; None means the middle measured one.
        """
        if rows <= 0:
            return 0.0
        known = self.contexts
        if context is None:
            context = known[len(known) // 2]
        after = bisect_right(known, context)
        if after == 0 or after == len(known):
            return self._at(known[max(0, after - 1)], rows)
        left, right = known[after - 1], known[after]
        share = (context - left) / (right - left)
        return (1 - share) * self._at(left, rows) + share * self._at(right, rows)

    def relative(self, rows: int, context: int | None = None) -> float:
        """C(W) / C(1): the price of ``rows`` rows in one-row passes at the same context."""
        return self.seconds(rows, context) / self.seconds(1, context)

    def between(self, rows: float, context: int | None = None) -> float:
        """:meth:`relative` on the line between two whole widths, for a mean of widths.

        >>> round(CostCurve.of({1: 1.0, 2: 1.1, 3: 1.3}).between(2.5), 6)
        1.2
        """
        whole = int(rows)
        part, low = rows - whole, self.relative(whole, context)
        return low + part * (self.relative(whole + 1, context) - low) if part else low

    def _at(self, context: int, rows: int) -> float:
        widths, seconds = self._by_context[context]
        after = bisect_right(widths, rows)
        if widths[after - 1] == rows:
            return seconds[after - 1]
        if after == len(widths):
            slope = 0.0
            if after > 1:
                slope = (seconds[-1] - seconds[-2]) / (widths[-1] - widths[-2])
            return seconds[-1] + max(0.0, slope) * (rows - widths[-1])
        share = (rows - widths[after - 1]) / (widths[after] - widths[after - 1])
        return (1 - share) * seconds[after - 1] + share * seconds[after]

    def write(self, path: Path) -> None:
        """Write ``cost_curve.csv``; :meth:`read` gives an equal curve."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for p in sorted(self.points):
                relative = f"{self.relative(p.rows, p.context):.4f}"
                writer.writerow([p.rows, p.context, p.seconds, p.low, p.high, relative])

    @classmethod
    def read(cls, path: Path) -> CostCurve:
        """Read ``cost_curve.csv``; a missing or malformed file is a :class:`DataError`."""
        try:
            with path.open(newline="", encoding="utf-8") as file:
                return cls(tuple(sorted(_point(row) for row in csv.DictReader(file))))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file; `breakeven bench` writes it") from None
        except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: not a cost curve ({type(error).__name__}: {error});"
                f" columns are {', '.join(COLUMNS)}"
            ) from None


def _point(row: dict[str, str]) -> Point:
    seconds = float(row["seconds"])
    low, high = (float(row.get(name) or seconds) for name in ("low", "high"))
    return Point(int(row["context"]), int(row["rows"]), seconds, low, high)


def _summary(context: int, rows: int, times: list[float]) -> Point:
    if len(times) < 2:
        return Point(context, rows, times[0], times[0], times[0])
    low, _, high = quantiles(times, n=4, method="inclusive")
    return Point(context, rows, median(times), low, high)
