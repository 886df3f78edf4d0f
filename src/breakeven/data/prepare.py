"""From a recipe to an artifact: collect, de-duplicate, render, split, continue, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breakeven.config import write_recipe
from breakeven.core import Finish
from breakeven.data.artifact import Row, write_artifact
from breakeven.data.contract import FILE, Contract
from breakeven.data.journal import Journal
from breakeven.data.prompt import Prompt, Source, Tally, deduplicated
from breakeven.data.recipe import PrepareRecipe
from breakeven.data.regenerate import Continuation, regenerate
from breakeven.data.render import Rendered, Renderer
from breakeven.data.sources.registry import (
    MAGPIE_PART,
    NEEDS_MODEL,
    Surroundings,
    build,
    wanted,
)
from breakeven.data.split import SPLITS, check_enough, split
from breakeven.errors import DataError, OutputExistsError

if TYPE_CHECKING:
    from breakeven.verifier.load import Loaded

EMPTY = "no prompt is left; name a source in the recipe, e.g. sources.magpie.count=50"
LIBRARIES = ("torch", "transformers", "tokenizers", "breakeven")
PART = "continuations.jsonl.part"
JOURNALS = (PART, MAGPIE_PART)
SHARDS = tuple(f"{name}-[0-9]*.parquet" for name in SPLITS)
OURS = ("recipe.yaml", "*_error.jsonl", *JOURNALS, *SHARDS, "*.new")  # besides the contract


@dataclass(slots=True)
class Collected:
    """The prompts of one source, and what it left out."""

    prompts: list[Prompt]
    tally: Tally


@dataclass(slots=True)
class Plan:
    """The prompts that will be continued, and what became of the others."""

    parts: dict[str, list[Rendered]]
    origin: dict[str, str]  # prompt id -> source
    tallies: list[Tally] = field(default_factory=list)
    after: Counter[str] = field(default_factory=Counter)  # dropped after collecting, by reason

    @property
    def rows(self) -> list[Rendered]:
        """All prompts of all splits."""
        return [row for part in self.parts.values() for row in part]

    def summary(self) -> dict[str, Any]:
        """Counts for people and machines."""
        return {
            "prompts": len(self.rows),
            "splits": {name: len(part) for name, part in self.parts.items()},
            "categories": dict(Counter(row.category for row in self.rows)),
            "sources": {
                t.source: {"given": t.kept, "dropped": dict(t.dropped)} for t in self.tallies
            },
            "dropped": dict(self.after),
            "prompt_tokens": sum(len(row.prompt_ids) for row in self.rows),
            "notes": [note for t in self.tallies for note in t.notes],
        }


def collect(recipe: PrepareRecipe, folder: Path | None) -> dict[str, Collected]:
    """The prompts of every source that needs no model, by its name.

    So a missing file, or too few prompts for the splits, is told before a model is loaded: a
    :class:`DataError`. Without a ``folder`` nothing is written.
    """
    around = Surroundings(None, folder)
    names = [name for name in wanted(recipe.sources) if name not in NEEDS_MODEL]
    found = {name: _read(build(name, recipe.sources, around)) for name in names}
    _origins(found)
    if not recipe.sources.magpie.count:
        unique, _ = _first_of_each(found)
        if not unique:
            raise DataError(EMPTY)
        s = recipe.split
        check_enough([p.pool for p in unique], validation=s.validation, test=s.test)
    return found


def plan(
    recipe: PrepareRecipe,
    loaded: Loaded,
    folder: Path | None,
    collected: Mapping[str, Collected] | None = None,
) -> Plan:
    """Split the prompts, those of :func:`collect` and what the model itself is to write.

    Without a ``folder`` nothing is written, and magpie is left out: what it would write cannot be
    split yet.
    """
    there = collect(recipe, folder) if collected is None else collected
    around = Surroundings(loaded, folder)
    sources = {
        name: there.get(name) or _read(build(name, recipe.sources, around))
        for name in wanted(recipe.sources)
        if folder is not None or name not in NEEDS_MODEL
    }
    made = Plan({}, _origins(sources), [source.tally for source in sources.values()])
    unique, twice = _first_of_each(sources)
    made.after["duplicates"] = twice
    rendering = Tally("rendering")
    rows = Renderer(loaded.tokenizer, recipe.render.max_prompt).render(unique, rendering)
    made.after.update(rendering.dropped)
    if not rows:
        raise DataError(EMPTY)
    s = recipe.split
    if folder is None and recipe.sources.magpie.count:
        made.parts = {"all": rows}
        return made
    made.parts = split(rows, validation=s.validation, test=s.test, seed=s.seed)
    made.after["kept for validation and test but not needed"] = len(rows) - len(made.rows)
    return made


def prepare(recipe: PrepareRecipe, loaded: Loaded, folder: Path, made: Plan) -> Contract:
    """Continue all prompts of the plan and write the artifact; resumes from its journal."""
    header = _contract(recipe, loaded, made, {}).model_dump(
        mode="json",
        include={"weights_sha256", "tokenizer_sha256", "chat_template_sha256", "max_continuation",
                 "dtype", "eos"},
    )  # fmt: skip
    with Journal(folder / PART, header) as journal:
        answers = regenerate(loaded.verifier, loaded.eos, made.rows, journal, recipe.generate)
    parts = {name: list(_rows(part, answers, loaded.eos)) for name, part in made.parts.items()}
    empty = len(made.rows) - sum(map(len, parts.values()))
    made.after["empty continuation"] = empty
    if empty == len(made.rows):
        raise DataError(
            f"all {empty} continuations are empty: the verifier ends its answer at once; check its "
            "chat template and end-of-sequence ids"
        )
    contract = _contract(recipe, loaded, made, parts)
    write_recipe(recipe, folder / "recipe.yaml")
    write_artifact(folder, parts, contract)
    for name in JOURNALS:
        (folder / name).unlink(missing_ok=True)
    return contract


def make_room(folder: Path, *, force: bool, resume: bool) -> None:
    """Refuse a folder that holds something else than an unfinished run of ours.

    ``force`` removes a finished artifact first, and nothing else that is there; without
    ``resume`` journals go, too.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputExistsError(f"{folder}: is a file; give a folder to --out")
    finished = (folder / FILE).exists()
    journals = [folder / name for name in JOURNALS if (folder / name).exists()]
    foreign = not all(any(map(path.match, OURS)) for path in folder.iterdir())
    if foreign and not finished and not journals:
        raise OutputExistsError(f"{folder}: holds other files; give another --out")
    if finished and not force:
        raise OutputExistsError(
            f"{folder}: holds an artifact; give another --out, or --force to overwrite it"
        )
    if finished:
        (folder / FILE).unlink()
        for shard in (path for pattern in SHARDS for path in folder.glob(pattern)):
            shard.unlink()
    if finished or not resume:
        for journal in journals:
            journal.unlink()


def _read(source: Source) -> Collected:
    tally = Tally(source.name)
    prompts = list(source.prompts(tally))
    tally.kept = len(prompts)
    return Collected(prompts, tally)


def _origins(sources: Mapping[str, Collected]) -> dict[str, str]:
    """From which source each prompt is, by its id."""
    origin: dict[str, str] = {}
    for name, source in sources.items():
        for prompt in source.prompts:
            if prompt.id in origin:
                raise DataError(
                    f"two prompts have the id '{prompt.id}'; rename one of the files they come from"
                )
            origin[prompt.id] = name
    return origin


def _first_of_each(sources: Mapping[str, Collected]) -> tuple[list[Prompt], int]:
    """The prompts without duplicates, of which there are so many; the first source keeps one."""
    return deduplicated([prompt for source in sources.values() for prompt in source.prompts])


def _rows(
    part: list[Rendered], answers: Mapping[str, Continuation], eos: frozenset[int]
) -> Iterator[Row]:
    for row in sorted(part, key=lambda r: r.id):
        answer = answers[row.key]
        if any(token not in eos for token in answer.token_ids):
            finish = Finish(answer.finish)
            yield Row(row.id, row.category, row.prompt_ids, answer.token_ids, finish)


def _contract(
    recipe: PrepareRecipe, loaded: Loaded, made: Plan, parts: Mapping[str, list[Row]]
) -> Contract:
    rows = [row for part in parts.values() for row in part]
    identity = loaded.identity
    return Contract(
        verifier=identity.name,
        weights_sha256=identity.weights_sha256,
        tokenizer_sha256=identity.tokenizer_sha256,
        chat_template_sha256=identity.chat_template_sha256,
        max_prompt=recipe.render.max_prompt,
        max_continuation=recipe.generate.max_new_tokens,
        dtype=str(loaded.verifier.dtype).removeprefix("torch."),
        eos=tuple(sorted(loaded.eos)),
        seed=recipe.split.seed,
        splits={name: len(part) for name, part in parts.items()},
        tokens={n: sum(len(r.continuation_ids) for r in part) for n, part in parts.items()},
        categories=dict(sorted(Counter(row.category for row in rows).items())),
        sources=dict(sorted(Counter(made.origin[row.id] for row in rows).items())),
        libraries={name: _version(name) for name in LIBRARIES},
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
