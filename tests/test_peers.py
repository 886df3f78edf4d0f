"""The race between engines, with workers that need no engine."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.peers import agreement, environments, race, standings
from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.race import Plan, Record
from benchmarks.peers.seat import Entry, Seat, SeatError, environment
from benchmarks.peers.workers import channel
from tiny import tiny_verifier

TASK = channel.Task("plain", Path("m"), Path("g"), Path("w"), 1, 3, 3, 2, 64, "")


class Fake:
    """A seat that answers at once; ``broken`` from that request on."""

    def __init__(self, entry: Entry, broken: int = 1000) -> None:
        self.entry, self.broken, self.stopped = entry, broken, False
        self.asked: list[Mapping[str, Any]] = []

    def ready(self, limit_s: float) -> dict[str, Any]:
        if self.entry.mode == "absent":
            raise SeatError("it ended with code 1: no such wheel")
        return {"package": self.entry.peer.name, "version": "1"}

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        self.asked.append(request)
        if len(self.asked) > self.broken:
            raise SeatError("no answer within 120 s")
        if request["do"] == "pass":
            return {"seconds": 0.01 * request["rows"]}
        return {"seconds": 1.0, "tokens": [[7] * request["count"] for _ in request["prompts"]]}

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "CALM_S", 0.0)


@pytest.mark.usefixtures("quick")
def test_engines_take_turns_and_the_broken_leave_with_their_reason() -> None:
    entries = [Entry(PEERS[OURS], "plain"), Entry(PEERS["llama.cpp"], "plain")]
    entries += [Entry(PEERS["vllm"], mode) for mode in ("lookup", "absent")]
    seats = [Fake(entries[0]), Fake(entries[1]), Fake(entries[2], broken=2), Fake(entries[3])]
    plan = Plan([[1], [2, 3]], 4, (1, 17), pass_rounds=3, crowd=[[1], [2]], crowd_rounds=1)
    outcome = race.race(entries, plan, lambda entry: seats[entries.index(entry)])
    assert all(seat.stopped for seat in seats)
    assert outcome.left == {
        "vllm absent": "it ended with code 1: no such wheel",
        "vllm lookup": "no answer within 120 s",
    }
    kinds = [(r.kind, r.round, r.rows) for r in outcome.records if r.entry == "llama.cpp plain"]
    assert kinds.count(("decode", 1, 0)) == 1
    assert ("batch", 0, 0) not in kinds  # it has no such call
    assert kinds.count(("pass", 2, 17)) == 1
    assert {r.tokens for r in outcome.records if r.kind == "decode"} == {4}


@pytest.mark.usefixtures("quick")
def test_after_the_time_is_up_only_the_first_round_is_run() -> None:
    entry = Entry(PEERS[OURS], "plain")
    plan = Plan([[1], [2], [3]], 4, (1,), limit_s=-1.0)
    records = race.race([entry], plan, Fake).records
    assert {(r.kind, r.round) for r in records} == {("decode", 0), ("pass", 0)}


def decoded(entry: str, number: int, seconds: float, count: int = 10) -> Record:
    return Record("decode", number, entry, seconds, outputs=((1,) * count,))


def test_targets_compare_with_the_best_peer_within_rounds() -> None:
    records = [
        *(decoded("breakeven plain", i, 1.0 + i) for i in range(2)),
        *(decoded("breakeven lookup", i, 0.5 + 0.5 * i) for i in range(2)),
        *(decoded("llama.cpp plain", i, 0.9 + 0.9 * i) for i in range(2)),
        *(decoded("openvino plain", i, 2.0 + 2 * i) for i in range(2)),
        *(decoded("llama.cpp q4_1", i, 0.1) for i in range(2)),
        Record("pass", 0, "breakeven plain", 0.05, rows=17),
        Record("pass", 0, "openvino plain", 0.10, rows=17),
    ]
    found = {t.what: t for t in standings.Standings(records).targets()}
    assert found["plain ÷ llama.cpp plain"].measured == pytest.approx(0.9)
    assert found["breakeven lookup ÷ llama.cpp plain"].measured == pytest.approx(1.8)
    assert found["plain ÷ transformers plain"].met is None
    wide = found["seconds of a 17-row pass ÷ openvino plain"]
    assert wide.measured == pytest.approx(0.5)
    assert wide.met
    console = Console(width=120, record=True)
    table = standings.rates(standings.Standings(records), "decode", "title")
    console.print(table, standings.passes(standings.Standings(records)))
    text = console.export_text()
    assert "llama.cpp q4_1 (other weights)" in text
    assert "100.0" in text


def test_answers_that_part_are_judged_by_the_verifier() -> None:
    verifier = tiny_verifier(vocab=32)
    from breakeven.decode.generate import generate
    from breakeven.decode.request import Request

    prompt = (1, 2, 3)
    [answer] = generate(verifier, [Request("a", prompt, 6)])
    tokens = tuple(answer.tokens)
    wrong = (*tokens[:3], (tokens[3] + 1) % 32, *tokens[4:])
    outputs = {
        "breakeven plain": tokens,
        "x plain": tokens,
        "y plain": wrong,
        "z plain": tokens[:2],
    }
    records = [Record("decode", 0, name, 1.0, outputs=(o,)) for name, o in outputs.items()]
    x, y, z = agreement.compare(records, [prompt], verifier, frozenset())
    assert (x.answers, x.partings) == (1, ())
    assert [(p.position, p.kind) for p in y.partings] == [(3, "other")]
    assert [(p.position, p.kind) for p in z.partings] == [(2, "ends elsewhere")]
    console = Console(width=120, record=True)
    console.print(agreement.agreements([x, y, z]))
    assert "0 of 1" in console.export_text()


def wheel(folder: Path) -> Path:
    """The smallest package that pip installs."""
    file = folder / "tinypeer-1.0-py3-none-any.whl"
    info = "tinypeer-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tinypeer.py", "VALUE = 1\n")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinypeer\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return file


@pytest.mark.slow
def test_a_peer_is_installed_once_or_left_out_with_the_reason(tmp_path: Path) -> None:
    peer = Peer("tiny", "none", ("plain",), requirements=(str(wheel(tmp_path)),))
    environments.install(peer, tmp_path / "peers", "--no-index")
    assert environments.ready(peer, tmp_path / "peers")
    environments.install(peer, tmp_path / "peers", "--no-such-option")  # nothing is done
    other = Peer("other", "none", ("plain",), requirements=("no-such-wheel==1",))
    with pytest.raises(environments.InstallError, match=r"No matching distribution.*install\.log"):
        environments.install(other, tmp_path / "peers", "--no-index")
    assert not environments.ready(other, tmp_path / "peers")


def test_a_worker_that_dies_or_hangs_is_named(tmp_path: Path) -> None:
    absent = Entry(Peer("x", "no_such_worker", ("plain",)), "plain")
    seat = Seat(absent, Path(sys.executable), TASK, tmp_path / "x.log")
    with pytest.raises(SeatError, match=r"ended with code 1.*no_such_worker"):
        seat.ready(60)
    seat.stop()
    hung = Seat(Entry(PEERS[OURS], "plain"), Path(sys.executable), TASK, tmp_path / "y.log")
    with pytest.raises(SeatError, match="no answer within 0 s"):
        hung.ready(0.01)
    hung.stop()


def test_workers_run_without_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    variables = environment(PEERS["vllm"], threads=3)
    assert "VIRTUAL_ENV" not in variables
    assert variables["OMP_NUM_THREADS"] == "3"
    assert not variables["PYTHONPATH"].endswith("src")
    assert environment(PEERS[OURS], 1)["PYTHONPATH"].endswith("src")


class Echo(channel.Engine):
    """Answers with the prompts themselves."""

    package = "breakeven"

    def __init__(self, task: channel.Task) -> None:
        del task

    def decode(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        return [prompt[:count] for prompt in prompts]


def test_requests_are_answered_in_json() -> None:
    engine = Echo(TASK)
    answer = channel._answer(engine, {"do": "decode", "prompts": [[4, 5, 6]], "count": 2})
    assert json.loads(json.dumps(answer))["tokens"] == [[4, 5]]
    with pytest.raises(NotImplementedError, match="several rows"):
        channel._answer(engine, {"do": "pass", "rows": 4, "context": 9})
