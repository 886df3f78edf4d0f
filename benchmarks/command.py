"""How a benchmark is called, and what a person sees when something is wrong: one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from breakeven.cli.app import INTERRUPTED, explain
from breakeven.errors import RecipeError


class Parser(argparse.ArgumentParser):
    """A parser of which a mistake is a :class:`RecipeError`, one line without the usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        raise RecipeError(f"{message}; see `python -m benchmarks.{self.module} --help`")

    @property
    def module(self) -> str:
        """The benchmark's name.

        >>> Parser(prog="python -m benchmarks.peers").module, Parser(prog="decode.py").module
        ('peers', 'decode')
        """
        return self.prog.rpartition("benchmarks.")[2].removesuffix(".py")


def positive(text: str) -> int:
    """The type of an option that counts something.

    >>> positive("3")
    3
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': give a whole number of 1 or more")
    return int(text)


def start(main: Callable[[], None]) -> NoReturn:
    """Run a benchmark and leave: exit code 2 and one line for what a person can mend."""
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        print(line, file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
