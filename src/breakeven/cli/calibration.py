"""What ``breakeven calibrate`` says: what it would measure, and what it has found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from breakeven.cost.calibration import Calibration
    from breakeven.measure.calibration.acceptance import Acceptance
    from breakeven.measure.calibration.check import Checked
    from breakeven.measure.calibration.plan import CalibrationPlan

PAGE = "calibration.html"


def intention(
    plan: CalibrationPlan, model: str, other_modes: bool, stored: list[str]
) -> dict[str, Any]:
    """What would be measured, stage by stage, for machines."""
    lengths = ", ".join(map(str, plan.lengths))
    rounds, seconds = f"rounds of {', '.join(plan.drafters)} with K = {lengths}", plan.seconds
    took = {"passes": seconds("passes"), "rounds": seconds("rounds")}
    does = {
        "passes": f"{len(plan.cells())} kinds of passes by width, context and batch",
        "rounds": rounds,
    }
    if plan.acceptance:
        does["rounds"] = f"{rounds}; in turn with them answers with scripted drafts"
        took["rounds"] += seconds("answers")
    if other_modes:
        does["modes"] = f"{len(plan.widths)} widths in PyTorch (eager)"
        took["modes"] = seconds("modes")
    return {
        "model": model,
        "minutes": plan.minutes,
        "stages": [
            {"stage": name, "does": text, "seconds": round(took[name])}
            for name, text in does.items()
        ],
        "passes": len(plan.cells()),
        "drafters": list(plan.drafters),
        "k": list(plan.lengths),
        "stored": stored,
    }


def said(found: dict[str, Any]) -> str:
    """What would be measured, for people."""
    lines = [f"would calibrate {found['model']} in about {found['minutes']:g} min:"]
    lines += [f"  {s['stage']}: {s['does']}, about {s['seconds']} s" for s in found["stages"]]
    lines.append("  the rest is loading the model and building the drafters")
    if found["stored"]:
        names = ", ".join(found["stored"])
        lines.append(f"  stored by a run before, used again if nothing has changed: {names}")
    return "\n".join(lines)


def show(
    found: Calibration,
    asked: Acceptance | None,
    checked: list[Checked],
    out: Path,
    as_json: bool,
) -> None:
    """Print the tables, the check and the other engines' command lines, or all as JSON."""
    from breakeven.measure.calibration.elsewhere import commands
    from breakeven.measure.calibration.tables import (
        break_even_table,
        check_table,
        heading,
        sentences,
    )
    from breakeven.verifier.int8 import base_name

    longest = max((max(k) for k in found.drafters.values()), default=4)
    survival = asked.survival(longest) if asked else (0.8, 0.6, 0.45)
    name = base_name(str(found.verifier["name"]))
    engines = commands(name if "/" in name else "MODEL", survival)
    if as_json:
        answer = {"out": str(out), "calibration": found.row(), "check": [c.row() for c in checked]}
        answer["commands"] = {e.engine: [e.speculative, e.plain, e.measure] for e in engines}
        print(json.dumps(answer, indent=2))
        return
    from rich.console import Console

    console = Console()
    console.print(heading(found), style="bold")
    console.print(break_even_table(found))
    for line in sentences(found, asked):
        console.print(line, highlight=False, markup=False)
    if checked:
        console.print(check_table(checked))
    rates = ", ".join(f"{s:.3g}" for s in survival)
    console.print(
        f"\nThe same question elsewhere (survival {rates}; DRAFTER is any draft model of the "
        "engine's, MODEL its name for yours):",
        highlight=False,
    )
    for engine in engines:
        for line in engine.lines():
            print(line)
    print(f"Files: {out / 'calibration.json'}, {out / PAGE}; next: breakeven oracle {out}")
