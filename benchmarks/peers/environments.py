"""A virtual environment for each peer, made once and kept."""

from __future__ import annotations

import shlex
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.catalogue import Peer

READY = ".ready"
LIMIT_S = 3600


class InstallError(Exception):
    """A peer cannot be installed; the message says why in one line."""


def interpreter(peer: Peer, folder: Path) -> Path:
    """The Python that runs a peer's worker: ours for ourselves."""
    return folder / peer.name / "bin" / "python" if peer.requirements else Path(sys.executable)


def ready(peer: Peer, folder: Path) -> bool:
    """Whether a peer is installed, with the requirements of today."""
    mark = folder / peer.name / READY
    return not peer.requirements or (mark.is_file() and mark.read_text() == _stamp(peer))


def install(peer: Peer, folder: Path, pip_arguments: str = "") -> None:
    """Make ``folder/NAME`` unless it is there; raises :class:`InstallError`.

    What pip says is kept in ``install.log``. A run that was stopped goes on where it stopped.
    """
    if ready(peer, folder):
        return
    home = folder / peer.name
    home.mkdir(parents=True, exist_ok=True)
    extra = shlex.split(pip_arguments)
    with (home / "install.log").open("w") as log:
        if not interpreter(peer, folder).exists():
            venv.create(home, with_pip=True)
        _pip(peer, folder, ["install", *extra, *peer.requirements], log.fileno())
        if peer.bare:
            _pip(peer, folder, ["install", *extra, "--no-deps", *peer.bare], log.fileno())
        if peer.unwanted:
            _pip(peer, folder, ["uninstall", "--yes", *peer.unwanted], log.fileno())
    (home / READY).write_text(_stamp(peer))


def _pip(peer: Peer, folder: Path, arguments: Sequence[str], log: int) -> None:
    command = [str(interpreter(peer, folder)), "-m", "pip", *arguments]
    try:
        done = subprocess.run(command, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"pip did not end ({error})") from None
    if done.returncode:
        file = folder / peer.name / "install.log"
        lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith("error")]
        raise InstallError(f"{(errors or lines or ['pip said nothing'])[-1][:300]} (see {file})")


def _stamp(peer: Peer) -> str:
    return "\n".join((*peer.requirements, "--", *peer.bare, "--", *peer.unwanted, ""))
