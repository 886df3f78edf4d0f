"""``breakeven oracle``: what would pay under other prices."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.options import Json
from breakeven.cli.recipes import is_typed
from breakeven.errors import DataError, RecipeError

if TYPE_CHECKING:
    from breakeven.report.prospect import Line
    from breakeven.report.variations import WhatIf

_HAND, _WHAT_IF = "By hand", "What if"

RunDir = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN_DIR|CALIBRATION",
        help="A folder `breakeven bench` wrote, or what `breakeven calibrate` wrote.",
    ),
]
PaperFlag = Annotated[
    bool, typer.Option("--paper", help="The paper's own figures, from its constants.")
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="NAME", help="Only this configuration of the run, or this drafter."
    ),
]
Survival = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="S1,S2,...",
        help="By hand: survival, the share of rounds whose first k drafts were all accepted; "
        "with --conditional, or for a calibration, how often draft k holds given that those "
        "before it did (there the last value goes on, and a free first token takes none).",
        rich_help_panel=_HAND,
    ),
]
Conditional = Annotated[
    bool,
    typer.Option(
        "--conditional",
        help="By hand, too, the values of --acceptance are given that the drafts before held.",
        rich_help_panel=_HAND,
    ),
]
DraftCost = Annotated[
    float,
    typer.Option(
        metavar="STEPS", help="Drafting one round, in plain steps.", rich_help_panel=_HAND
    ),
]
Sequential = Annotated[
    bool,
    typer.Option(
        "--sequential",
        help="--draft-cost is the price of each drafted token, not of the round.",
        rich_help_panel=_HAND,
    ),
]
VerifyCost = Annotated[
    str,
    typer.Option(
        metavar="STEPS[,...]",
        help="Verifying, in plain steps: one value for the full draft, or one for each K.",
        rich_help_panel=_HAND,
    ),
]
OtherCost = Annotated[
    float,
    typer.Option(metavar="STEPS", help="Everything else in a round.", rich_help_panel=_HAND),
]
PlainSpeed = Annotated[
    float,
    typer.Option(
        "--plain",
        metavar="TOK/S",
        help="Speed of plain decoding, to get tokens per second instead of ratios.",
        rich_help_panel=_HAND,
    ),
]
More = Annotated[
    float,
    typer.Option(
        "--more-acceptance",
        metavar="SHARE",
        help="What if each draft held so much more often, given those before?",
        rich_help_panel=_WHAT_IF,
    ),
]
Cheaper = Annotated[
    float,
    typer.Option(
        "--draft-price",
        min=0.0,
        metavar="TIMES",
        help="What if drafting cost so many times as much?",
        rich_help_panel=_WHAT_IF,
    ),
]
Kept = Annotated[
    float,
    typer.Option(
        "--keep-vocabulary",
        metavar="SHARE",
        help="What if the drafter's head kept this share of its tokens?",
        rich_help_panel=_WHAT_IF,
    ),
]
HeadShare = Annotated[
    float,
    typer.Option(
        "--head-share",
        metavar="SHARE",
        help="Share of the drafting price that the head takes; with --keep-vocabulary.",
        rich_help_panel=_WHAT_IF,
    ),
]


def oracle(
    context: typer.Context,
    run_dir: RunDir = None,
    paper: PaperFlag = False,
    config: Config = None,
    acceptance: Survival = None,
    conditional: Conditional = False,
    draft_cost: DraftCost = 0.0,
    sequential: Sequential = False,
    verify_cost: VerifyCost = "1.0",
    other_cost: OtherCost = 0.0,
    plain: PlainSpeed = 1.0,
    more_acceptance: More = 0.1,
    draft_price: Cheaper = 0.5,
    keep_vocabulary: Kept = 1.0,
    head_share: HeadShare = 0.0,
    as_json: Json = False,
) -> None:
    """Compute what would pay: break-even, best K, the paper's oracle.

    A round of speculative decoding **earns** AL tokens (acceptance length: tokens committed /
    verify passes, the verifier's own bonus token included) and **costs** c_d + c_v + c_s plain
    decoding steps (drafting, verifying, everything else). That sum is the **break-even**: below
    it, plain decoding is faster.

    The oracle takes away a share **r** of the drafting time (r = 0: as measured, r = 1: drafting
    is free) and asks what acceptance length **A\\*(r)** plain decoding's speed would then need.
    The complementary oracle keeps AL and lets the passes run at the price of a plain step.

    From a calibration it tells what each drafter needs, or with `--acceptance` what it would be
    worth, by width, context, mode and batch. The values are conditional there: 0.8,0.6,0.5 is
    the survival 0.8,0.48,0.24 by hand.

    Examples:

        breakeven oracle --paper
        breakeven oracle runs/demo/bench --more-acceptance 0.05
        breakeven oracle runs/calibration --acceptance 0.8,0.6,0.5
        breakeven oracle --acceptance 0.8,0.6,0.5 --draft-cost 1.0 --verify-cost 1.1
        breakeven oracle --acceptance 0.8,0.75,0.8 --conditional --sequential \\
            --draft-cost 0.1
    """
    from breakeven.report.prospect import by_hand, hand_lines, paper_lines
    from breakeven.report.variations import WhatIf

    what = WhatIf(more_acceptance, draft_price, head_share, keep_vocabulary)
    _one_source(run_dir is not None, paper, acceptance is not None and run_dir is None)
    if acceptance is None or run_dir is not None:
        _nothing_by_hand(context)
    rates = [] if acceptance is None else _numbers("--acceptance", acceptance)
    if paper:
        title, lines = paper_lines()
    elif run_dir is not None:
        title, lines = from_files(run_dir, rates, config, what)
    else:
        prices = _numbers("--verify-cost", verify_cost)
        how = {"one_by_one": sequential, "conditional": conditional}
        outlook = by_hand(rates, draft_cost, prices, other=other_cost, plain=plain, **how)
        title, lines = hand_lines(outlook, what)
    _show(title, lines, as_json)


def _one_source(*given: bool) -> None:
    """A run or calibration, the paper, or figures by hand."""
    if sum(given) != 1:
        raise RecipeError(
            "give one of: RUN_DIR, --paper, or --acceptance S1,S2,...;"
            " `breakeven oracle --paper` is a start"
        )


def _nothing_by_hand(context: typer.Context) -> None:
    """Figures that a run, a calibration or the paper has measured cannot be given as well."""
    for param in context.command.params:
        by_hand = getattr(param, "rich_help_panel", None) == _HAND and param.name != "acceptance"
        if by_hand and is_typed(context, str(param.name)):
            raise RecipeError(
                f"{param.opts[0]} is for figures typed by hand (--acceptance alone); here it was"
                " measured: leave it out"
            )


def from_files(
    path: Path, rates: list[float], config: str | None, what: WhatIf
) -> tuple[str, list[Line]]:
    """The oracle of a calibration at ``rates``, or of a run, whose acceptance is measured."""
    from breakeven.cost.calibration import Calibration
    from breakeven.cost.profile import checked_rates
    from breakeven.report.calibrated import calibrated_lines
    from breakeven.report.prospect import run_lines
    from breakeven.report.run import load_run

    if is_calibration(path):
        rates = list(checked_rates(rates, "--acceptance"))
        return calibrated_lines(Calibration.read(path), rates, config, what)
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder; `breakeven calibrate` writes a calibration,"
            " `breakeven bench` a run"
        )
    if path.is_dir() and not any(entry.is_file() for entry in path.iterdir()):
        raise DataError(
            f"{path}: neither a calibration nor a run is in it; `breakeven calibrate --out {path}`"
            " writes one, or goes on with one that was stopped"
        )
    if rates:
        load_run(path)  # what is no run either says so
        raise RecipeError(f"{path} is a run, whose acceptance was measured: leave the rates out")
    return run_lines(path, config, what)


def is_calibration(path: Path) -> bool:
    """Whether a path is what ``calibrate`` wrote: its file, or a folder that holds it."""
    return path.suffix == ".json" or (path / "calibration.json").is_file()


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(
            f"{option} {text!r}: numbers separated by commas, e.g. 0.8,0.6,0.5"
        ) from None


def _show(title: str, lines: list[Line], as_json: bool) -> None:
    if as_json:
        answer = {"title": title, "lines": [asdict(line) for line in lines]}
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(title, style="bold")
    for config in dict.fromkeys(line.config for line in lines):
        table = Table(title=config, title_justify="left", show_lines=True)
        table.add_column("question", ratio=4)
        table.add_column("r", justify="right")
        table.add_column("answer", justify="right", no_wrap=True)
        table.add_column("what it means", ratio=7)
        for line in lines:
            if line.config == config:
                table.add_row(line.question, line.r_text, line.answer, line.meaning)
        console.print(table)
    console.print("r: share of the drafting time taken away (0 as measured, 1 drafting is free)")
