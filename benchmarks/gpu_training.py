"""The campaign's stages that start programs: the CUDA tests, and training with real weights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu_passes import Row

ROOT = Path(__file__).parents[1]
RECIPES = ("peft_bd_gated", "peft_bd_paper", "fastmtp")
TAIL = 1500
"""Characters of a program's output that are kept."""


def program(words: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Exit code (None: out of time) and the end of the output of ``python -m words``."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=max(1.0, seconds),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return None, str(late.stdout or "")[-TAIL:]
    return done.returncode, (done.stdout + done.stderr)[-TAIL:]


def cuda_tests(seconds: float) -> Row:
    """``pytest -m cuda``: how many passed, failed and were skipped."""
    words = ["pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", "tests/test_cuda.py"]
    code, output = program(words, seconds)
    counts = {
        word: int(number)
        for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", output)
    }
    return {"exit_code": code, **counts, "output": "" if code == 0 else output}


def training(
    weights: Path, device: str, out: Path, minutes: float, recipes: Sequence[str] = RECIPES
) -> Iterator[Row]:
    """Train each published recipe for its share of the minutes; at the end, one benchmark.

    A tenth of the time is the benchmark's.
    """
    artifact, share = str(ROOT / "assets/smollm2-135m"), 0.9 * minutes / len(recipes)
    drafters = []
    for recipe in recipes:
        folder = out / recipe
        code, output = program(
            [
                *("breakeven", "train", f"recipes/smollm2-135m/{recipe}.yaml"),
                *("-a", artifact, "-o", str(folder), "--device", device, "--force"),
                *(f"verifier={weights}", f"train.max_minutes={share:.2f}"),
            ],
            60 * share + 300,
        )
        made = folder / "provenance.json"
        found: Row = {"recipe": recipe, "minutes": share, "exit_code": code}
        if code == 0 and made.is_file():
            found["provenance"] = json.loads(made.read_text())
            name = found["provenance"].get("drafter", recipe)
            drafters += ["--drafter", f"{name}={folder}"]
        else:
            found["output"] = output
        yield found
    if drafters:
        bench = out / "bench"
        words = ["breakeven", "bench", *drafters, "--k", "2,4", "--model", str(weights)]
        words += ["--artifact", artifact, "--device", device, "--out", str(bench), "--force"]
        code, output = program([*words, "--json"], 60 * max(2.0, 0.1 * minutes) + 300)
        yield {"bench": str(bench), "exit_code": code, "output": output}
