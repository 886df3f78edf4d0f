"""``calibration.json``: what passes cost on this machine, for planning before anything is trained.

`breakeven calibrate` measures it, the oracle and the run-time policy read it. All times are
seconds; every price in *plain steps* is over the plain step at the same batch and context.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from breakeven.cost.breakeven import RoundCost
from breakeven.cost.curve import LONGEST, CostCurve, Point
from breakeven.errors import DataError, nearest
from breakeven.files import write_whole

FILE, KIND = "calibration.json", "calibration"
Curves = Mapping[int, CostCurve]
"""Cost curves by batch; batch 1 is always there."""


@dataclass(frozen=True, slots=True)
class DraftPrice:
    """What a round with one drafter costs beside the verify pass, at one K, by batch.

    ``verify_rows`` is the width of the verify pass after a full draft: K + 1, or K with a free
    first token. ``seconds`` are the drafting passes, and what the verify pass takes more where
    something of the drafter's is aboard; ``outside`` what lies in no pass. ``start`` is paid
    once for each answer, by drafters that read the prompt themselves: seconds of their passes over
    a prompt of the base context.
    """

    verify_rows: int
    seconds: Mapping[int, float]
    outside: Mapping[int, float]
    start: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """Measured prices of one verifier in one execution mode on one machine.

    ``step_seconds`` is a plain step at batch 1 and the base context, everything included;
    ``outside_seconds`` the part of a round without any drafter's work that lies in no pass.
    ``base`` is the context of both and of all draft prices.

    >>> curve = CostCurve.of({1: 0.024, 4: 0.027, 8: 0.036}, context=128)
    >>> own = {3: DraftPrice(4, {1: 0.012}, {1: 0.001})}
    >>> made = Calibration({}, {"name": "m"}, "native", 2, 0.025, 0.001, 128, {1: curve},
    ...                    drafters={"fastmtp": own})
    >>> cost = made.round_cost("fastmtp", 3)
    >>> round(cost.draft, 2), round(cost.verify, 2), round(cost.break_even, 2)
    (0.48, 1.08, 1.6)
    """

    machine: Mapping[str, Any]
    verifier: Mapping[str, Any]
    mode: str
    threads: int
    step_seconds: float
    outside_seconds: float
    base: int
    curves: Curves
    drafters: Mapping[str, Mapping[int, DraftPrice]] = field(default_factory=dict)
    other_modes: Mapping[str, Curves] = field(default_factory=dict)
    dtype: str = "float32"
    command: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for curves in (self.curves, *self.other_modes.values()):
            if 1 not in curves:
                raise DataError("calibration: no cost curve at batch 1; measure it as well")
        if not (0 < self.step_seconds < LONGEST and 0 <= self.outside_seconds < LONGEST):
            raise DataError("calibration: step_seconds must be above 0, outside_seconds not below")
        for name, least in (("base", self.base), ("threads", self.threads)):
            if least < 1:
                raise DataError(f"calibration: {name} {least}: at least 1")

    def seconds(self, rows: int, context: int | None = None, batch: int = 1) -> float:
        """Seconds of a verifier pass of ``rows`` rows for each of ``batch`` requests.

        Linear between measured widths, contexts and batches; ``context`` None is the base.
        """
        at = self.base if context is None else context
        return along({b: curve.seconds(rows, at) for b, curve in self.curves.items()}, batch)

    def step(self, context: int | None = None, batch: int = 1) -> float:
        """Seconds of a plain step of ``batch`` requests, time outside the pass included."""
        return self.seconds(1, context, batch) + self.plain_outside

    def relative(self, rows: int, context: int | None = None, batch: int = 1) -> float:
        """C(W) / C(1) at the same context and batch, passes alone."""
        return self.seconds(rows, context, batch) / self.seconds(1, context, batch)

    @cached_property
    def plain_outside(self) -> float:
        """Seconds of a plain step that lie outside its pass."""
        return max(0.0, self.step_seconds - self.seconds(1))

    def draft_lengths(self, drafter: str) -> tuple[int, ...]:
        """The K at which a drafter was measured; an unknown drafter is a :class:`DataError`."""
        if drafter not in self.drafters:
            known = nearest(drafter, self.drafters) if self.drafters else "it has none"
            raise DataError(f"calibration: no drafter '{drafter}'; {known}")
        return tuple(sorted(self.drafters[drafter]))

    def draft_seconds(self, drafter: str, k: int, batch: int = 1) -> float:
        """Seconds of drafting ``k`` tokens, linear between measured K."""
        return self._priced(drafter, k, lambda price: along(price.seconds, batch))

    def outside(self, drafter: str | None, k: int, batch: int = 1) -> float:
        """Seconds of a round with this drafter (None: any) outside all passes."""
        if drafter is None:
            return self.outside_seconds
        return self._priced(drafter, k, lambda price: along(price.outside, batch))

    def start(self, drafter: str, k: int, prompt: int) -> float:
        """Seconds that the drafter itself spends on a prompt of so many tokens, once an answer."""
        return self._priced(drafter, k, lambda price: price.start) * prompt / self.base

    def verify_rows(self, drafter: str, k: int) -> int:
        """Rows of the verify pass after ``k`` drafts: one less with a free first token."""
        longest = max(self.draft_lengths(drafter))
        return max(1, k - longest + self.drafters[drafter][longest].verify_rows)

    def round_cost(
        self, drafter: str, k: int, context: int | None = None, batch: int = 1
    ) -> RoundCost:
        """A round's price in plain steps at the same context and batch: its break-even."""
        step = self.step(context, batch)
        return RoundCost(
            draft=self.draft_seconds(drafter, k, batch) / step,
            verify=self.seconds(self.verify_rows(drafter, k), context, batch) / step,
            other=self.outside(drafter, k, batch) / step,
        )

    def _priced(self, drafter: str, k: int, read: Callable[[DraftPrice], float]) -> float:
        lengths = self.draft_lengths(drafter)
        return along({n: read(self.drafters[drafter][n]) for n in lengths}, k)

    def write(self, path: Path) -> None:
        """Write the file in one step; :meth:`read` gives an equal calibration."""
        write_whole(path, json.dumps(self.row(), indent=2, ensure_ascii=False) + "\n")

    def row(self) -> dict[str, Any]:
        """The content of the file; docs/formats.md explains each field."""
        curves = self.curves.values()
        return {
            "kind": KIND,
            "command": self.command,
            "machine": dict(self.machine),
            "verifier": dict(self.verifier),
            "mode": self.mode,
            "dtype": self.dtype,
            "threads": self.threads,
            "step_seconds": self.step_seconds,
            "outside_seconds": self.outside_seconds,
            "base_context": self.base,
            "widths": sorted({w for curve in curves for w in curve.widths}),
            "contexts": sorted({c for curve in curves for c in curve.contexts}),
            "batches": sorted(self.curves),
            "seconds": curves_row(self.curves),
            "drafters": {
                name: {str(k): price_row(price) for k, price in sorted(prices.items())}
                for name, prices in self.drafters.items()
            },
            "other_modes": {mode: curves_row(c) for mode, c in self.other_modes.items()},
            "warnings": list(self.warnings),
        }

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a calibration; a missing or malformed file is a :class:`DataError`."""
        path = path / FILE if path.is_dir() else path
        try:
            return cls.of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file; `breakeven calibrate` writes it") from None
        except KeyError as error:
            raise DataError(
                f"{path}: field {error} is missing; `breakeven calibrate` writes the whole file"
            ) from None
        except (
            OSError,
            AttributeError,
            TypeError,
            ArithmeticError,
            ValueError,
            DataError,
        ) as error:
            raise DataError(f"{path}: not a calibration ({error})") from None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Calibration:
        """From the content of the file; raises what malformed content raises."""
        if row.get("kind") != KIND:
            raise ValueError(f"kind is {row.get('kind')!r}, not '{KIND}'")
        return cls(
            machine=dict(row["machine"]),
            verifier={**row["verifier"], "name": str(row["verifier"]["name"])},
            mode=str(row["mode"]),
            threads=int(row["threads"]),
            step_seconds=float(row["step_seconds"]),
            outside_seconds=float(row["outside_seconds"]),
            base=int(row["base_context"]),
            curves=curves_of(row["seconds"]),
            drafters={
                name: {int(k): price_of(entry) for k, entry in prices.items()}
                for name, prices in row["drafters"].items()
                if prices
            },
            other_modes={mode: curves_of(c) for mode, c in row.get("other_modes", {}).items()},
            dtype=str(row.get("dtype", "float32")),
            command=str(row.get("command", "")),
            warnings=tuple(row.get("warnings", ())),
        )


def along(points: Mapping[int, float], x: int) -> float:
    """Linear between points; below the first its value, beyond the last its slope (not downwards).

    >>> [along({2: 1.0, 4: 2.0}, x) for x in (1, 3, 6)]
    [1.0, 1.5, 3.0]
    """
    known = sorted(points)
    if x <= known[0] or len(known) == 1:
        return points[known[0]]
    left, right = next(((a, b) for a, b in pairwise(known) if x <= b), (known[-2], known[-1]))
    slope = (points[right] - points[left]) / (right - left)
    if x > right:
        return points[right] + max(0.0, slope) * (x - right)
    return points[left] + slope * (x - left)


def curves_row(curves: Curves) -> dict[str, Any]:
    """``{batch: {context: {width: [median, low quartile, high quartile]}}}``."""
    return {
        str(batch): {
            str(context): {
                str(p.rows): [p.seconds, p.low, p.high]
                for p in sorted(curve.points)
                if p.context == context
            }
            for context in curve.contexts
        }
        for batch, curve in sorted(curves.items())
    }


def curves_of(row: Mapping[str, Any]) -> dict[int, CostCurve]:
    """What :func:`curves_row` wrote; raises what malformed content raises."""
    return {
        int(batch): CostCurve(
            tuple(
                Point(int(context), int(rows), *_triple(seconds))
                for context, widths in contexts.items()
                for rows, seconds in widths.items()
            )
        )
        for batch, contexts in row.items()
    }


def _triple(seconds: Any) -> tuple[float, float, float]:
    """A bare number is a median without spread."""
    if isinstance(seconds, int | float):
        return (float(seconds),) * 3
    median, low, high = map(float, seconds)
    return median, low, high


def price_row(price: DraftPrice) -> dict[str, Any]:
    """A price as it stands in the file."""
    return {
        "verify_rows": price.verify_rows,
        "seconds": {str(b): s for b, s in sorted(price.seconds.items())},
        "outside_seconds": {str(b): s for b, s in sorted(price.outside.items())},
        "start_seconds": price.start,
    }


def price_of(entry: Mapping[str, Any]) -> DraftPrice:
    """What :func:`price_row` wrote; raises what malformed content raises."""
    seconds, outside = (
        {int(b): float(s) for b, s in entry[name].items()}
        for name in ("seconds", "outside_seconds")
    )
    start = float(entry.get("start_seconds", 0.0))
    for value in (*seconds.values(), *outside.values(), start):
        if not 0 <= value < LONGEST:
            raise ValueError(f"a draft price of {value} seconds")
    if not (seconds and outside):
        raise ValueError("a draft price without seconds")
    return DraftPrice(int(entry["verify_rows"]), seconds, outside, start)
