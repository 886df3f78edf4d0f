"""The ``breakeven`` program: its verbs, and what a person sees when something goes wrong.

A verb is a module ``cli/<verb>.py`` with one function ``<verb>(...)``; adding one takes a row in
:data:`VERBS`. The module is imported when its verb is called or its help is asked for, so
``breakeven --help`` loads nothing heavy.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

import breakeven
from breakeven.errors import BreakevenError
from breakeven.measure.packages import remedy

#: OpenMP threads sleep while they wait, from before torch is loaded: threads that spin take the
#: processors away from the native passes, and from neighbours.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
INTERRUPTED = 130  # what a shell expects of a program ended by Ctrl-C


@dataclass(frozen=True, slots=True)
class Verb:
    """One line about a verb, and what Ctrl-C leaves behind."""

    summary: str
    kept: str = "nothing was changed; run it again"


VERBS = {
    "prepare": Verb(
        "Build the data: prompts and the verifier's own continuations of them.",
        "the rows written so far are kept; the same command continues after them",
    ),
    "train": Verb(
        "Train a drafter on an artifact.",
        "the last checkpoint is kept, if one was due yet; the same command goes on",
    ),
    "ablate": Verb(
        "Train many variants of a drafter under one budget, and say what each choice is worth.",
        "finished runs and answers are kept; the same command goes on from the last checkpoint",
    ),
    "layers": Verb("Find which of its own layers the verifier can draft with; no training."),
    "generate": Verb("Answer prompts, with or without a drafter, and show the account."),
    "bench": Verb(
        "Measure drafters against plain decoding on held-out prompts.",
        "what was measured is kept; the same command with --resume continues",
    ),
    "audit": Verb("Check that the output is the verifier's own, and class every divergence."),
    "calibrate": Verb(
        "Learn what acceptance speculation needs here, before training anything.",
        "finished stages are kept; the same command continues after them",
    ),
    "oracle": Verb("Compute what would pay: break-even, best K, the paper's oracle."),
    "verdict": Verb("Say whether it pays, from result files; the exit code answers too."),
    "report": Verb("Draw report.html from result files."),
    "paper": Verb(
        "Run the paper's whole protocol and show its tables beside yours.",
        "finished stages are kept; the same command continues after them",
    ),
    "demo": Verb(
        "From nothing to a verdict with the bundled model.",
        "finished steps are kept; the same command continues after them",
    ),
    "doctor": Verb("Show what is installed and what to do about each problem."),
}


def plain_flags(params: list[Any]) -> list[Any]:
    """The parameters of a help page; beside a flag, which takes no value, stands no type."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


SHORTAGES = ("out of memory", "can't allocate memory", "not enough memory")
WANTED = re.compile(r"tried to allocate ([\d.]+) (\w+)", re.IGNORECASE)


class PlainCommand(TyperCommand):
    """A verb whose help names the types of values only."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` among them."""
        return plain_flags(super().get_params(ctx))


class LazyGroup(TyperGroup):
    """A group that imports a verb's module when the verb is called."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` among them."""
        return plain_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in its stub's place, then resolve as usual."""
        if args and args[0] in VERBS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="breakeven",
    cls=LazyGroup,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Start with `breakeven demo`. Every verb has `--help` with an example.",
)


@app.callback(invoke_without_command=True)
def breakeven_(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks (may stand anywhere on the line).")
    ] = False,
) -> None:
    """Speculative decoding that pays, or says why it does not."""
    if version:
        print(f"breakeven {breakeven.__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


def _stub() -> None:
    """Stand for a verb in the list until it is called."""


for _name, _verb in VERBS.items():
    app.command(_name, help=_verb.summary)(_stub)


def load(verb: str) -> Any:
    """The verb's command, from the function ``<verb>`` of ``breakeven.cli.<verb>``."""
    function = getattr(importlib.import_module(f"breakeven.cli.{verb}"), verb)
    text = inspect.cleandoc(function.__doc__ or "").replace("::\n", ":\n")
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(verb, cls=PlainCommand, help=text)(function)
    return typer.main.get_command(alone)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of ASCII shows ? for the rest
            stream.reconfigure(errors="replace")
    sys.exit(run(words, debug=debug))


def run(words: Sequence[str], *, debug: bool = False) -> int:
    """Run the program; return the exit code. With ``debug`` errors are raised."""
    verb = next((word for word in words if word in VERBS), "")
    try:
        answer = typer.main.get_command(app).main(
            args=list(words), prog_name="breakeven", standalone_mode=False
        )
    except KeyboardInterrupt:
        answer = INTERRUPTED
    except Exception as error:
        line = explain(error, verb)
        if debug or line is None:
            raise
        _say(line)
        return int(getattr(error, "exit_code", 2))
    if answer == INTERRUPTED:
        _say(f"interrupted: {VERBS[verb].kept if verb else 'nothing was changed'}")
    return answer if isinstance(answer, int) else 0


def explain(error: Exception, verb: str = "") -> str | None:
    """The line that tells a person what to do, or None when the fault is ours.

    >>> explain(OSError(errno.ENOSPC, "No space left on device", "runs/a.parquet"))
    'error: the disk is full (runs/a.parquet); free some space and run the same command again'
    >>> explain(ZeroDivisionError()) is None
    True
    """
    match error:
        case BreakevenError():
            return f"error: {error}"
        case typer.TyperException():
            text = error.format_message().rstrip(".").replace("\n", " ")
            return f"error: {text}; see `{f'breakeven {verb}'.strip()} --help`"
        case typer.Abort():
            return "error: not confirmed, nothing was done"
        case ModuleNotFoundError() if not (error.name or "breakeven").startswith("breakeven"):
            return f"error: {error.name} is not installed; run: {remedy(str(error.name))}"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = f" ({error.filename})" if error.filename else ""
            return f"error: the disk is full{where}; free some space and {again(verb)}"
        case MemoryError() | RuntimeError() if is_shortage(error):
            wanted = WANTED.search(str(error))
            more = f", another {wanted[1]} {wanted[2]} were wanted" if wanted else ""
            return f"error: not enough memory{more}; ask for less at once (batch, tokens, rank, K)"
        case Exception() if f"(os error {errno.ENOSPC})" in str(error):  # safetensors
            return f"error: the disk is full; free some space and {again(verb)}"
        case FileExistsError() | NotADirectoryError() if error.filename:
            return f"error: {error.filename}: a file stands where a folder is wanted; give another"
        case PermissionError() if error.filename:
            return f"error: {error.filename}: no permission; give another place or change its mode"
        case OSError(errno=int(), strerror=str(reason), filename=str(path)):
            return f"error: {path}: {reason.lower()}"
    return None


def is_shortage(error: Exception) -> bool:
    """Whether memory has run out, of the machine or of the GPU, as PyTorch says it.

    >>> is_shortage(RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB."))
    True
    """
    text = str(error)
    return isinstance(error, MemoryError) or any(words in text for words in SHORTAGES)


def again(verb: str) -> str:
    """How a stopped command goes on.

    >>> again("train"), again("bench")
    ('run the same command again', 'run the same command again with --resume')
    """
    return "run the same command again" + (" with --resume" if verb == "bench" else "")


def _say(line: str) -> None:
    print(" ".join(line.split()), file=sys.stderr)
