"""A worker process with its model loaded, as the race sees it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.workers.channel import Task

ROOT = Path(__file__).parents[2]


class SeatError(Exception):
    """A worker died, hung or answered with an error; the message says which in one line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Who takes part: one peer in one mode."""

    peer: Peer
    mode: str

    @property
    def name(self) -> str:
        """Peer and mode, as in the tables."""
        return f"{self.peer.name} {self.mode}"


class Seat:
    """Starts a worker and passes requests to it, one at a time."""

    def __init__(self, entry: Entry, python: Path, task: Task, log: Path) -> None:
        """``python`` is the peer's interpreter; what the worker prints goes to ``log``."""
        self.entry, self.log = entry, log
        fields = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(task).items()}
        module = f"benchmarks.peers.workers.{entry.peer.worker}"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", module, json.dumps(fields)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(entry.peer, task.threads),
                cwd=ROOT,
            )
        self._unread = b""

    def ready(self, limit_s: float) -> dict[str, Any]:
        """Wait until the model is loaded; returns the package and its version."""
        facts: dict[str, Any] = self._read(limit_s)["ready"]
        return facts

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """One request and its answer."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise SeatError(self._death()) from None
        answer = self._read(limit_s)
        if "error" in answer:
            raise SeatError(answer["error"])
        return answer

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, limit_s: float) -> dict[str, Any]:
        pipe: IO[bytes] | None = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + limit_s
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                if line.startswith(b'{"'):  # a library may have printed before the channel was set
                    message: dict[str, Any] = json.loads(line)
                    return message
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise SeatError(f"no answer within {limit_s:.0f} s (see {self.log})")
            chunk = os.read(pipe.fileno(), 1 << 16)
            if not chunk:
                raise SeatError(self._death())
            self._unread += chunk

    def _death(self) -> str:
        code = self._process.wait()
        lines = [s for s in self.log.read_text(errors="replace").splitlines() if s.strip()]
        last = lines[-1].strip()[:200] if lines else "it printed nothing"
        return f"it ended with code {code}: {last} (see {self.log})"


def environment(peer: Peer, threads: int) -> dict[str, str]:
    """Variables of a worker: the same threads for all, no hub, nothing from our environment."""
    path = [str(ROOT)] if peer.requirements else [str(ROOT), str(ROOT / "src")]
    kept = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONHOME")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **peer.environment,
    }
