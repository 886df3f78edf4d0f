"""How a worker is spoken to: one JSON object a line, a request in, an answer out.

    {"do": "decode", "prompts": [[1, 2]], "count": 96}   → {"tokens": [[…]], "seconds": 2.3}
    {"do": "pass", "rows": 17, "context": 100}           → {"seconds": 0.05}

The first line says that the model is loaded: ``{"ready": {"engine": …}}``. What cannot be done is
answered by ``{"error": …}``. This module and the workers import nothing of Breakeven's, since
they run in the environment of another engine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is started for."""

    mode: str  # plain, lookup, or a mode of the engine's own
    model: Path  # a Hugging Face directory with fp32 weights
    gguf: Path  # what it was made from
    work: Path  # where converted weights are kept
    threads: int
    draft_tokens: int
    longest_ngram: int
    batch: int  # the most prompts in one request
    positions: int  # the longest sequence
    drafter: str  # NAME=FOLDER, for a mode that has trained weights


class Engine(ABC):
    """One engine with its model loaded, for one mode."""

    package: ClassVar[str]
    """The distribution whose version is reported."""

    @abstractmethod
    def __init__(self, task: Task) -> None: ...

    @abstractmethod
    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """Continue every prompt greedily by at most ``count`` tokens."""

    def prepare(self, context: int, rows: int) -> Callable[[], object]:
        """What runs one pass of ``rows`` rows over ``context`` tokens, ready to be timed."""
        raise NotImplementedError("no way to run a pass of several rows")


def serve(kind: type[Engine]) -> None:
    """Load the engine and answer requests until standard input ends.

    What libraries print goes to standard error, so that only answers are on standard output.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = _task()
    engine = kind(task)
    from importlib.metadata import version

    _say(answers, {"ready": {"package": kind.package, "version": version(kind.package)}})
    for line in sys.stdin:
        try:
            _say(answers, _answer(engine, json.loads(line)))
        except Exception as error:  # an engine may raise anything; the next request may work
            _say(answers, {"error": f"{type(error).__name__}: {error}"[:300]})


def _answer(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "pass":
        job = engine.prepare(request["context"], request["rows"])
        start = time.perf_counter()
        job()
        return {"seconds": time.perf_counter() - start}
    start = time.perf_counter()
    tokens = engine.decode(request["prompts"], request["count"])
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


def _say(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _task() -> Task:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", type=json.loads, help="the fields of Task as JSON")
    fields = parser.parse_args().task
    return Task(**{**fields, **{name: Path(fields[name]) for name in ("model", "gguf", "work")}})
