"""The stages in their order: what each does, what it is made from, how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.counting import counted
from breakeven.errors import RecipeError, nearest
from breakeven.paper.recipe import NAMES, DecodingSection, PaperRecipe
from breakeven.paper.session import Session

OVERHEAD = 1.6
"""Dry runs price a drafted answer at so many plain ones; passes of 17 rows are not free."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. ``uses`` are the drafters whose weights its result depends on.

    ``minutes`` is what it takes by the recipe's pace, None where that cannot be told.
    """

    name: str
    about: Callable[[PaperRecipe], str]
    settings: Callable[[PaperRecipe], Any]
    minutes: Callable[[PaperRecipe], float | None]
    run: Callable[[Session], dict[str, Any]]
    uses: tuple[str, ...] = ()


def stages(recipe: PaperRecipe) -> list[Stage]:
    """All stages of a recipe, in order."""
    return [
        Stage(
            "artifact",
            lambda r: (
                f"prompts and continuations in {r.artifact.path}"
                + (f", prepared by {r.artifact.prepare} if missing" if r.artifact.prepare else "")
            ),
            lambda r: {**_common(r), "prepare": str(r.artifact.prepare)},
            lambda r: None if _to_prepare(r) else 0.0,
            _artifact,
        ),
        *(_training(name) for name in NAMES if name in recipe.train or name in recipe.drafters),
        Stage(
            "loop",
            lambda r: f"transformers loop and engine side by side, {_size(r.loop)}",
            lambda r: {**_common(r), **r.loop.model_dump()},
            lambda r: _decoding(r, r.loop, 2, r.pace.loop_step_ms + r.pace.step_ms),
            _loop,
            ("peft-bd", "anchored"),
        ),
        Stage(
            "bench",
            lambda r: f"engine: plain decoding, PEFT-BD and FastMTP, {_size(r.bench)}",
            lambda r: {**_common(r), **r.bench.model_dump(), "fastmtp_drafts": r.fastmtp_drafts},
            lambda r: _decoding(r, r.bench, 2, r.pace.step_ms),
            _bench,
            ("peft-bd", "fastmtp"),
        ),
        Stage(
            "profile",
            lambda r: f"call counts and latencies of PEFT-BD's passes, {_size(r.profile)}",
            lambda r: {**_common(r), **r.profile.model_dump(exclude={"repeats"})},
            lambda r: _decoding(r, r.profile, 1, r.pace.step_ms),
            _profile,
            ("peft-bd",),
        ),
        Stage(
            "ablations",
            lambda r: (
                "denoising steps (one, two, two refilled), the verifier's cache, the root in "
                f"the block, {_size(r.ablations)}"
            ),
            lambda r: {**_common(r), **r.ablations.model_dump()},
            lambda r: _decoding(r, r.ablations, 5, r.pace.step_ms),
            _ablations,
            ("peft-bd", "anchored"),
        ),
    ]


def choose_stages(
    recipe: PaperRecipe, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> list[Stage]:
    """The stages that are wanted; an unknown name is a :class:`RecipeError`."""
    known = stages(recipe)
    names = [stage.name for stage in known]
    for flag, given in (("only", only), ("skip", skip)):
        for name in given:
            if name not in names:
                raise RecipeError(f"--{flag} {name}: no such stage; {nearest(name, names)}")
    return [s for s in known if (not only or s.name in only) and s.name not in skip]


def _training(name: str) -> Stage:
    def about(recipe: PaperRecipe) -> str:
        if name in recipe.drafters:
            return f"handed in: {recipe.drafters[name]}"
        section = recipe.train[name]  # type: ignore[index]
        limit = f", {section.minutes:g} minutes at most" if section.minutes else ""
        return f"train {name} by {section.recipe}{limit}"

    def settings(recipe: PaperRecipe) -> Any:
        section = recipe.train.get(name)  # type: ignore[call-overload]
        trained = None if name in recipe.drafters or section is None else section
        return {**_common(recipe), "train": trained and trained.model_dump(mode="json")}

    def minutes(recipe: PaperRecipe) -> float | None:
        if name in recipe.drafters:
            return 0.0
        section = recipe.train[name]  # type: ignore[index]
        steps = steps_of(section.settings)
        by_steps = None if steps is None else steps * recipe.pace.training_step_s / 60
        return section.minutes or by_steps

    def run(session: Session) -> dict[str, Any]:
        from breakeven.paper.training import handed_in, train

        given = session.drafters(name).get(name) if name in session.recipe.drafters else None
        if given is not None:
            return {"handed_in": str(given), "budget": handed_in(given)}
        return {"handed_in": None, "budget": train(session, name)}

    return Stage(name, about, settings, minutes, run)


def steps_of(settings: Sequence[str]) -> int | None:
    """The steps that a training section states; None where its recipe decides.

    >>> steps_of(["train.steps=10000"]), steps_of([])
    (10000, None)
    """
    stated = [word.partition("=")[2] for word in settings if word.startswith("train.steps=")]
    return int(stated[-1]) if stated else None


def _to_prepare(recipe: PaperRecipe) -> bool:
    section = recipe.artifact
    return section.prepare is not None and not section.path.is_dir()


def _common(recipe: PaperRecipe) -> dict[str, Any]:
    return {
        "verifier": recipe.verifier.name,
        "device": recipe.verifier.device,
        "artifact": str(recipe.artifact.path),
        "split": recipe.artifact.split,
        "seed": recipe.seed,
    }


def _size(section: DecodingSection) -> str:
    times = "once" if section.repeats == 1 else f"{section.repeats} times"
    return (
        f"{counted(section.prompts, 'prompt')} {times}, {counted(section.max_new_tokens, 'token')}"
    )


def _decoding(recipe: PaperRecipe, section: DecodingSection, drafted: int, step_ms: float) -> float:
    """Minutes of decoding plainly and in ``drafted`` configurations, full answers."""
    tokens = section.prompts * section.repeats * section.max_new_tokens
    return tokens * (1 + OVERHEAD * drafted) * step_ms / 60_000


def _artifact(session: Session) -> dict[str, Any]:
    from breakeven.paper.training import make_artifact

    return make_artifact(session)


def _loop(session: Session) -> dict[str, Any]:
    from breakeven.paper.paths import measure_paths

    return measure_paths(session)


def _bench(session: Session) -> dict[str, Any]:
    from breakeven.paper.engine import benchmark

    return benchmark(session)


def _profile(session: Session) -> dict[str, Any]:
    from breakeven.paper.engine import profile

    return profile(session)


def _ablations(session: Session) -> dict[str, Any]:
    from breakeven.paper.engine import ablate

    return ablate(session)
