"""``breakeven demo``: from nothing to a verdict with the bundled model, step by step."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PositiveFloat

from breakeven.cli.options import DryRun, Force, Json, OutPath, Overrides, RecipePath, Threads
from breakeven.cli.shipped import shipped
from breakeven.config import Section, load_recipe, write_recipe
from breakeven.counting import counted
from breakeven.errors import OutputExistsError, RecipeError, nearest
from breakeven.measure.recipe import BenchRecipe

if TYPE_CHECKING:
    from breakeven.data.artifact import Artifact
    from breakeven.measure.conclusion import BenchResult
    from breakeven.train.recipe import TrainRecipe
    from breakeven.verifier.load import Loaded

RECIPE = Path("recipes/smollm2-135m/demo.yaml")
ASKED = 96
"""Tokens of the answer that is shown, at most."""
KEPT = "demo.yaml"  # the resolved recipe, which also marks a folder as a demo's


class Training(Section):
    """One drafter to train: its recipe, the minutes it may take, other settings of the recipe."""

    recipe: Path
    minutes: PositiveFloat
    settings: tuple[str, ...] = ()


class DemoRecipe(Section):
    """The demo from end to end. ``train`` is by drafter name, ``bench`` says what is measured."""

    question: str = "Why is the sky blue? Answer in two sentences."
    train: dict[str, Training]
    bench: BenchRecipe


def demo(
    overrides: Overrides = None,
    recipe: RecipePath = None,
    out: OutPath = Path("runs/demo"),
    threads: Threads = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """From nothing to a verdict: a real model, two trained drafters, a benchmark, an audit.

    It answers a question, trains two drafters on the model's own continuations, measures every
    configuration against plain decoding on held-out prompts, checks that the output is the
    model's own, and ends with one sentence that says what pays here and with a page to look at.
    A finished step is not repeated: after Ctrl-C the same command goes on. `--force` starts anew.

    Examples:

        breakeven demo
        breakeven demo --dry-run
        breakeven demo bench.prompts.count=48 bench.repeats=5 --out runs/longer
    """
    settings = load_recipe(DemoRecipe, recipe or shipped(RECIPE), overrides or ())
    check_parts(settings)
    if dry_run:
        print(json.dumps(settings.model_dump(mode="json"), indent=2) if as_json else plan(settings))
        return
    make_place(out, force=force)
    write_recipe(settings, out / KEPT)
    began = time.perf_counter()
    result = walk(settings, out, threads, quiet=as_json)
    if as_json:
        print((out / "bench" / "verdict.json").read_text())
        return
    minutes = (time.perf_counter() - began) / 60
    print(f"\n{result.verdict.sentence}\n")
    print(f"Done in {minutes:.1f} minutes. Open {out / 'report.html'} in a browser.")


def check_parts(settings: DemoRecipe) -> None:
    """Raise for a drafter, an option or a file nobody knows, before anything is loaded."""
    from breakeven.data.artifact import load_artifact
    from breakeven.drafters.registry import check, names
    from breakeven.train.methods import METHODS

    for where, given, known in (
        ("bench.drafters", [d.name for d in settings.bench.drafters], names()),
        ("train", list(settings.train), sorted(METHODS)),
    ):
        for name in given:
            if name not in known:
                raise RecipeError(f"{where}: no drafter is called '{name}'; {nearest(name, known)}")
    for c in settings.bench.configurations:  # none, or one twice, is an error as well
        check(c.drafter, c.path, c.options)
    for training in settings.train.values():
        training_recipe(training)
    load_artifact(shipped(settings.bench.prompts.artifact))


def training_recipe(training: Training) -> TrainRecipe:
    """The recipe of a drafter to train, with the minutes it may take."""
    from breakeven.train.methods import load_train_recipe

    overrides = [f"train.max_minutes={training.minutes}", *training.settings]
    return load_train_recipe(shipped(training.recipe), overrides)


def make_place(out: Path, *, force: bool) -> None:
    """Check that ``out`` is new, empty or an earlier demo's; ``force`` empties an earlier one.

    Raises :class:`OutputExistsError` for a folder that holds anything else.
    """
    if out.exists() and not (out / KEPT).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise OutputExistsError(f"{out}: exists and is not a demo's folder; give another --out")
    if force and out.is_dir():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)


def plan(settings: DemoRecipe) -> str:
    """What would be done, in lines."""
    bench = settings.bench
    lines = [f"ask {bench.verifier.name}: {settings.question}"]
    lines += [f"train {name} for {t.minutes:g} minutes" for name, t in settings.train.items()]
    names = [c.name for c in bench.configurations]
    answers = bench.prompts.count * bench.repeats * (len(names) + 1)
    lines.append(
        f"decode {counted(bench.prompts.count, 'held-out prompt')} "
        f"{counted(bench.repeats, 'time')} plainly and with "
        f"{', '.join(names)}: {counted(answers, 'answer')} of at most {bench.max_new_tokens} tokens"
    )
    return "\n".join([*lines, "audit every answer", "draw report.html"])


def walk(settings: DemoRecipe, out: Path, threads: int | None, *, quiet: bool) -> BenchResult:
    """The steps, each with a headline; returns what the benchmark found."""
    from breakeven.data.artifact import load_artifact
    from breakeven.report.page import write_report
    from breakeven.verifier.load import load_verifier

    verifier, prompts = settings.bench.verifier, settings.bench.prompts
    step = headlines(5 + len(settings.train), quiet)
    step(f"Load the verifier, {verifier.name}")
    loaded = load_verifier(
        verifier.name,
        threads=threads or verifier.threads,
        device=verifier.device,
        weights=verifier.weights,
        mode=verifier.mode,
    )
    artifact = load_artifact(shipped(prompts.artifact), loaded.identity)
    step(f"Ask it: {settings.question}")
    answer(loaded, settings.question, quiet)
    folders = {}
    for name, training in settings.train.items():
        step(f"Train {name} on the verifier's own continuations, {training.minutes:g} minutes")
        folders[name] = trained(name, training, loaded, artifact, out, quiet)
    step("Measure every configuration against plain decoding, on held-out prompts")
    result = measured(with_folders(settings.bench, folders), loaded, artifact, out / "bench")
    step("Audit: is every answer the verifier's own?")
    for audit in () if quiet else result.audits:
        print(f"{audit.config}: {audit.verdict.value}, {counted(audit.tokens, 'token')} compared")
    step("Draw the report")
    write_report([out / "bench"], out / "report.html", force=True)
    if not quiet:
        from rich.console import Console

        from breakeven.measure.table import bench_table

        Console().print(bench_table(result))
    return result


def headlines(total: int, quiet: bool) -> Any:
    """A function that prints numbered headlines."""
    count = 0

    def say(text: str) -> None:
        nonlocal count
        count += 1
        if not quiet:
            print(f"\n[{count}/{total}] {text}", flush=True)

    return say


def answer(loaded: Loaded, question: str, quiet: bool) -> None:
    """Decode one answer plainly and print it, with a word where the limit cuts it."""
    from breakeven.core import Finish
    from breakeven.data.prompt import Message
    from breakeven.data.render import Renderer
    from breakeven.decode.generate import generate
    from breakeven.decode.request import Request

    ids = Renderer(loaded.tokenizer).ids((Message("user", question),))
    request = Request("demo", ids, ASKED, loaded.eos)
    (done,) = generate(loaded.verifier, [request], tokenizer=loaded.tokenizer)
    if not quiet:
        cut = f" … (it goes on; {ASKED} tokens are shown)" if done.finish is Finish.LENGTH else ""
        print(f"{done.text}{cut}")


def trained(
    name: str, training: Training, loaded: Loaded, artifact: Artifact, out: Path, quiet: bool
) -> Path:
    """The drafter's folder, trained now unless it was before."""
    from breakeven.train.provenance import PROVENANCE_FILE
    from breakeven.train.run import make_room, train_drafter

    folder = out / name
    if (folder / PROVENANCE_FILE).is_file():
        print(f"{folder}: trained already", file=sys.stderr)
        return folder
    make_room(folder, force=False)
    report = train_drafter(training_recipe(training), loaded, artifact, folder)
    if not quiet:
        real = report.outcome.validated.real
        print(f"{report.sizes}; {counted(report.outcome.counts.step, 'step')}")
        print(
            f"acceptance length {real.length:.2f} on {counted(real.prompts, 'validation prompt')}"
        )
    return folder


def with_folders(bench: BenchRecipe, folders: dict[str, Path]) -> BenchRecipe:
    """The same benchmark with the folders of the drafters trained here."""
    drafters = tuple(
        d.model_copy(update={"path": folders.get(d.name, d.path)}) for d in bench.drafters
    )
    return bench.model_copy(update={"drafters": drafters})


def measured(bench: BenchRecipe, loaded: Loaded, artifact: Artifact, out: Path) -> BenchResult:
    """Run, or finish, the benchmark with its audit."""
    from breakeven.measure.bench import run_bench
    from breakeven.measure.prompts import choose

    return run_bench(
        loaded,
        choose(artifact.rows(bench.prompts.split), bench.prompts.count, bench.seed),
        bench.configurations,
        out,
        repeats=bench.repeats,
        max_new_tokens=bench.max_new_tokens,
        seed=bench.seed,
        artifact=str(bench.prompts.artifact),
        split=bench.prompts.split,
        command="breakeven demo",
        recipe=bench,
        resume=out.is_dir(),
    )
