"""The measurement: every engine in turn on the same request, in an order drawn anew each round.

One worker runs at a time; the others wait for their next line. An engine that dies, hangs or
answers with an error leaves the race with its reason, and the others go on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from benchmarks.peers.seat import Entry, SeatError
from breakeven.progress import meter

CALM_S = 0.3
"""Pause before each request: threads of the engine before spin on for up to 0.2 s."""

LOAD_S, ANSWER_S = 900.0, 120.0
"""A worker that takes longer is given up."""


class Runner(Protocol):
    """What the race needs of a seat."""

    entry: Entry

    def ready(self, limit_s: float) -> dict[str, Any]:
        """Wait for the model."""

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """One request and its answer."""

    def stop(self) -> None:
        """End the worker."""


@dataclass(frozen=True, slots=True)
class Record:
    """One answered request. ``outputs`` are the new tokens of each of its prompts."""

    kind: str  # decode, batch or pass
    round: int
    entry: str
    seconds: float
    rows: int = 0  # of a pass
    outputs: tuple[tuple[int, ...], ...] = ()

    @property
    def tokens(self) -> int:
        """New tokens."""
        return sum(map(len, self.outputs))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked: each prompt alone, passes of each width, all of ``crowd`` together."""

    prompts: Sequence[Sequence[int]]
    count: int
    widths: Sequence[int] = ()
    context: int = 100
    pass_rounds: int = 7
    crowd: Sequence[Sequence[int]] = ()
    crowd_count: int = 32
    crowd_rounds: int = 2
    limit_s: float = float("inf")
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What was measured, with whom, and who left and why."""

    records: list[Record] = field(default_factory=list)
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """The records for the JSON file."""
        return [{**asdict(record), "tokens": record.tokens} for record in self.records]


Start = Callable[[Entry], Runner]


def race(entries: Sequence[Entry], plan: Plan, start: Start) -> Outcome:
    """Load every entry's model, one after the other, then run the plan."""
    outcome, seats = Outcome(), list[Runner]()
    try:
        with meter("loading engines", len(entries), every_s=0.0) as progress:
            for entry in entries:
                progress.note(entry.name)
                _enter(entry, start, seats, outcome)
                progress.advance()
        _warm_up(seats, plan, outcome)
        _run(seats, plan, outcome)
    finally:
        for seat in seats:
            seat.stop()
    return outcome


def _enter(entry: Entry, start: Start, seats: list[Runner], outcome: Outcome) -> None:
    seat = start(entry)
    try:
        outcome.engines[entry.name] = seat.ready(LOAD_S)
        seats.append(seat)
    except SeatError as error:
        outcome.left[entry.name] = str(error)
        seat.stop()


def _warm_up(seats: list[Runner], plan: Plan, outcome: Outcome) -> None:
    request = {"do": "decode", "prompts": [list(plan.prompts[0])], "count": 8}
    for seat in tuple(seats):
        _ask(seat, request, seats, outcome)


def _run(seats: list[Runner], plan: Plan, outcome: Outcome) -> None:
    order = random.Random(plan.seed)
    deadline = time.monotonic() + plan.limit_s
    jobs = list(_jobs(plan))
    with meter("racing", len(jobs)) as progress:
        for kind, number, request in jobs:
            progress.advance()
            if time.monotonic() > deadline and number:  # a first round of everything is run
                continue
            for seat in order.sample(seats, len(seats)):
                if takes(seat.entry, kind):
                    time.sleep(CALM_S)
                    answer = _ask(seat, request, seats, outcome)
                    if answer is not None:
                        outcome.records.append(_record(kind, number, seat, request, answer))


def _jobs(plan: Plan) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The requests of all rounds, kinds taking turns."""
    for number in range(max(len(plan.prompts), plan.pass_rounds, plan.crowd_rounds)):
        if number < len(plan.prompts):
            prompts = [list(plan.prompts[number])]
            yield "decode", number, {"do": "decode", "prompts": prompts, "count": plan.count}
        if number < plan.crowd_rounds and plan.crowd:
            prompts = [list(prompt) for prompt in plan.crowd]
            yield "batch", number, {"do": "decode", "prompts": prompts, "count": plan.crowd_count}
        if number < plan.pass_rounds:
            for rows in plan.widths:
                yield "pass", number, {"do": "pass", "rows": rows, "context": plan.context}


def takes(entry: Entry, kind: str) -> bool:
    """Whether an entry can be asked for this; passes only of the plain mode."""
    if kind == "pass":
        return entry.peer.widths and entry.mode == "plain"
    return kind == "decode" or (entry.peer.batch and entry.mode != "q4_1")


def _ask(
    seat: Runner, request: Mapping[str, Any], seats: list[Runner], outcome: Outcome
) -> dict[str, Any] | None:
    try:
        return seat.ask(request, ANSWER_S)
    except SeatError as error:
        outcome.left[seat.entry.name] = str(error)
        seat.stop()
        seats.remove(seat)
        return None


def _record(
    kind: str, number: int, seat: Runner, request: Mapping[str, Any], answer: Mapping[str, Any]
) -> Record:
    outputs = tuple(tuple(tokens) for tokens in answer.get("tokens", ()))
    rows = int(request.get("rows", 0))
    return Record(kind, number, seat.entry.name, answer["seconds"], rows, outputs)
