"""The prices of an earlier calibration, for decoding with the same verifier on the same machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from breakeven.cost.calibration import Calibration
from breakeven.decode.policy.named import PRICED
from breakeven.errors import DataError
from breakeven.measure.machine import cpu_name, gpu_name
from breakeven.verifier.load import Loaded


def prices_for(loaded: Loaded, path: Path) -> Calibration:
    """Read a calibration; one of another model, mode or machine is a :class:`DataError`.

    A policy that is given it need not measure a curve of its own when decoding starts.
    """
    found = Calibration.read(path)
    verifier = loaded.verifier
    on_gpu = verifier.device.type == "cuda"
    facts: dict[str, tuple[object, object]] = {
        "verifier": (found.verifier.get("weights_sha256"), loaded.identity.weights_sha256),
        "mode": (found.mode, verifier.mode),
        "dtype": (found.dtype, str(verifier.dtype).removeprefix("torch.")),
        "processor": (
            found.machine.get("gpu" if on_gpu else "cpu"),
            gpu_name() if on_gpu else cpu_name(),
        ),
        "threads": (found.threads, torch.get_num_threads()),
    }
    for field, (measured, here) in facts.items():
        if measured != here:
            raise DataError(
                f"{path}: its {field} is {measured}, here it is {here}; "
                "run `breakeven calibrate` with the same settings"
            )
    return found


def unread(path: Path, policies: Iterable[str]) -> str | None:
    """A sentence when none of ``policies`` (of what drafts) reads the prices of ``path``.

    >>> unread(Path("c.json"), ["fixed"])
    'the prices of c.json are not read: only the policy adaptive reads them, this is fixed'
    >>> unread(Path("c.json"), ["fixed", "adaptive"]) is None
    True
    """
    given = list(dict.fromkeys(policies))
    if PRICED & set(given):
        return None
    only = f"the prices of {path} are not read: only the policy {' or '.join(sorted(PRICED))}"
    return f"{only} reads them, this is {', '.join(given) or 'plain decoding'}"
