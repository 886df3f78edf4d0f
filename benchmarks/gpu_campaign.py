"""Everything worth knowing about this engine on a GPU, in one command and within its time.

    python -m benchmarks.gpu_campaign --minutes 25 --out runs/gpu
    python -m benchmarks.gpu_campaign --device cpu --tiny --minutes 5 --out runs/gpu-tiny

Stages: the CUDA tests; memory bandwidth; for the shapes of SmolLM2-135M and Qwen3-0.6B, with random
weights, the cost of passes (eager, compiled, graph) by width and batch, a plain step beside what
memory allows, the passes and rounds of PEFT-BD and of its fused form, and the break-even that
follows; with ``--weights`` also training. ``campaign.json`` and ``campaign.md`` are written anew
all the time, so that a kill loses nothing. What is skipped is said, with the reason.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_passes as passes
from benchmarks.command import Parser, start
from benchmarks.gpu_passes import SHAPES, SMALL, Row, Scale
from benchmarks.gpu_tables import markdown
from benchmarks.gpu_training import RECIPES, cuda_tests, training
from benchmarks.pieces import join, split
from breakeven.errors import OutputExistsError, RecipeError
from breakeven.measure.machine import machine_facts
from breakeven.verifier.decoder import LeanVerifier

JSON_FILE, TABLE_FILE = "campaign.json", "campaign.md"
SAVE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the campaign; ``skip`` says why it cannot be done."""

    name: str
    work: Callable[[], Iterable[Row]]
    skip: str | None = None


class Campaign:
    """Runs stages until the time is over and keeps the files up to date."""

    def __init__(self, out: Path, minutes: float, facts: dict[str, Any]) -> None:
        self.out, self._end = out.resolve(), time.monotonic() + 60 * minutes
        self.content: dict[str, Any] = {**facts, "minutes": minutes, "stages": {}}
        self._saved = 0.0
        out.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds left."""
        return self._end - time.monotonic()

    def run(self, stage: Stage) -> None:
        """Do a stage as far as time and machine allow; whatever happens is on record."""
        entry: dict[str, Any] = {"status": "running", "rows": []}
        self.content["stages"][stage.name] = entry
        start = time.monotonic()
        why = stage.skip or ("the time is over" if self.left <= 0 else None)
        if why:
            entry.update(status="skipped", why=why)
        else:
            self._work(stage, entry)
        entry["seconds"] = round(time.monotonic() - start, 2)
        self.save()
        said = f" ({entry['why']})" if "why" in entry else ""
        print(f"{stage.name}: {entry['status']}{said}, {entry['seconds']} s", flush=True)

    def _work(self, stage: Stage, entry: dict[str, Any]) -> None:
        try:
            for row in stage.work():
                entry["rows"].append(row)
                if time.monotonic() - self._saved > SAVE_EVERY_S:
                    self.save()
                if self.left <= 0:
                    entry.update(status="stopped", why="the time is over")
                    return
            entry["status"] = "done"
        except Exception as error:  # a stage that fails must not take the others with it
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            entry.update(status="failed", why=reason)

    def save(self) -> None:
        """Write both files, each whole or not at all."""
        self._saved = time.monotonic()
        texts = {JSON_FILE: json.dumps(self.content, indent=1), TABLE_FILE: markdown(self.content)}
        for name, text in texts.items():
            unfinished = self.out / f"{name}.part"
            unfinished.write_text(text + "\n", encoding="utf-8")
            unfinished.replace(self.out / name)


def model_stages(name: str, options: argparse.Namespace, scale: Scale) -> Iterator[Stage]:
    """The stages of one model's shape; the model lives from the first to the last."""
    made: dict[str, Any] = {}

    def models() -> dict[str, Any]:
        if not made:
            made.update(
                passes.in_modes(passes.random_model(name, options.device, tiny=options.tiny))
            )
        return made

    def weights() -> Iterator[Row]:
        yield {"weight_bytes": passes.weight_bytes(models()["eager"])}

    def compiled() -> Iterator[Row]:
        only: dict[str, LeanVerifier] = {"compiled": passes.compiled(models()["eager"])}
        pairs = scale.compiled
        narrow = Scale(
            tuple(dict.fromkeys(w for _, w in pairs)),
            tuple(dict.fromkeys(b for b, _ in pairs)),
            pairs,
            scale.context,
            scale.rounds,
        )
        yield from passes.curves(only, narrow)

    def break_evens() -> Iterator[Row]:
        for masks in scale.masks:
            yield from passes.rounds(models(), masks, scale)

    def peft() -> Iterator[Row]:
        for masks in scale.masks:
            yield from passes.peft_passes(models(), masks, scale)
        made.clear()
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()

    yield Stage(f"{name}: weights", weights)
    yield Stage(f"{name}: cost curve", lambda: passes.curves(models(), scale))
    yield Stage(f"{name}: compiled", compiled)
    yield Stage(f"{name}: rounds", break_evens)
    yield Stage(f"{name}: PEFT-BD passes", peft)


def stages(campaign: Campaign, options: argparse.Namespace, scale: Scale) -> Iterator[Stage]:
    """All stages, in order of what is learned for the time."""
    device = torch.device(options.device)
    no_gpu = None if device.type == "cuda" else "needs a CUDA device"
    yield Stage("CUDA tests", lambda: [cuda_tests(campaign.left)], no_gpu)
    yield Stage("memory", lambda: [passes.memory(device, scale)])
    for name in options.models:
        yield from model_stages(name, options, scale)
    yield Stage(
        "training",
        lambda: training(
            join(options.weights, campaign.out / "weights"),
            options.device,
            campaign.out / "training",
            min(options.train_minutes, campaign.left / 60),
        ),
        None if options.weights else "no weights were given (--weights PART...)",
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0, help="the time limit (25)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: to try the command")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--force", action="store_true", help="replace earlier results")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument(
        "--weights", type=Path, nargs="+", metavar="PART", help="all pieces made by --split"
    )
    parser.add_argument("--train-minutes", type=float, default=10.0, help="for all recipes (10)")
    parser.add_argument("--split", type=Path, metavar="FILE", help="cut a GGUF file into --out")
    parser.add_argument("--piece-mb", type=float, default=24.0, help="largest piece (24)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the campaign, or cut a file into pieces."""
    options = parse(arguments)
    if options.split:
        for piece in split(options.split, options.out, int(options.piece_mb * 1e6)):
            print(piece)
        return
    scale = SMALL if options.tiny else Scale()
    if options.dry_run:
        said = ", ".join(options.models)
        print(f"CUDA tests; memory; for {said}: cost curve ({len(scale.batches)} batch sizes × ")
        print(f"{len(scale.widths)} widths, eager and graph), compiled, rounds, PEFT-BD passes")
        print(f"training: {', '.join(RECIPES) if options.weights else 'no, without --weights'}")
        print(f"at most {options.minutes:g} minutes on {options.device}; results in {options.out}")
        return
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise RecipeError(
            f"device '{options.device}': this PyTorch sees no CUDA device; to try the command "
            "without one give --device cpu --tiny"
        )
    if (options.out / JSON_FILE).exists() and not options.force:
        raise OutputExistsError(f"{options.out}: holds results; give another --out, or --force")
    facts = {
        "machine": machine_facts(),
        "device": options.device,
        "gpu": torch.cuda.get_device_name(options.device)
        if options.device.startswith("cuda")
        else None,
        "cuda": torch.version.cuda,
        "tiny": options.tiny,
    }
    campaign = Campaign(options.out, options.minutes, facts)
    for stage in stages(campaign, options, scale):
        campaign.run(stage)
    print((options.out / TABLE_FILE).read_text(encoding="utf-8"))


if __name__ == "__main__":
    start(main)
