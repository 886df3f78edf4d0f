"""Recipes are strict: what is not known is an error that says what is."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from breakeven.ablation.grid import Grid
from breakeven.cli.demo import DemoRecipe
from breakeven.config import Section, load_recipe, write_recipe
from breakeven.data.recipe import PrepareRecipe
from breakeven.errors import RecipeError
from breakeven.measure.recipe import BenchRecipe
from breakeven.paper.recipe import PaperRecipe
from breakeven.train.recipe import TrainRecipe

RECIPES = sorted((Path(__file__).parents[1] / "recipes").rglob("*.yaml"))


class Train(Section):
    steps: int = 10
    lr: float = 1e-3
    names: tuple[str, ...] = ()


class Source(Section):
    kind: str = "jsonl"
    path: Path | None = None


class Recipe(Section):
    train: Train = Train()
    sources: tuple[Source, ...] = ()
    fallback: Source | None = None


def test_a_file_and_overrides_make_one_recipe(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("train:\n  steps: 5\n  lr: 1e-4\n")
    recipe = load_recipe(Recipe, file, ["train.steps=7", "train.names=[a, b]"])
    assert recipe.train == Train(steps=7, lr=1e-4, names=("a", "b"))


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("# nothing\n")
    assert load_recipe(Recipe, file) == Recipe()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.stpes=3", "unknown key 'train.stpes'; did you mean 'steps'?"),
        ("trian.steps=3", "unknown key 'trian'; did you mean 'train'?"),
        ("sources=[{kidn: x}]", "unknown key 'sources.0.kidn'; did you mean 'kind'?"),
        ("fallback.pth=x", "unknown key 'fallback.pth'; did you mean 'path'?"),
        ("train.steps=many", "'train.steps' = 'many'"),
        ("train=5", "'train' = 5"),
        ("train.steps", "write section.field=value"),
        ("=3", "write section.field=value"),
        ("train.steps=[", "override 'train.steps=['"),
    ],
)
def test_a_wrong_override_is_told_in_one_line(override: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(Recipe, overrides=[override])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_override_inside_a_value_is_refused() -> None:
    with pytest.raises(RecipeError, match="'train' is a value, not a section"):
        load_recipe(Recipe, overrides=["train=5", "train.steps=3"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"train: [", "not readable as YAML"),
        (b"- 1\n", "a recipe is a mapping of sections, not a list"),
        (b"train:\n  steps: \xff\n", "not readable as YAML"),
    ],
)
def test_a_broken_file_is_told_with_its_name(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(content)
    with pytest.raises(RecipeError, match=said) as caught:
        load_recipe(Recipe, file)
    assert str(file) in str(caught.value)


def test_a_missing_file_says_where_recipes_are(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such recipe"):
        load_recipe(Recipe, tmp_path / "absent.yaml")


NAMES = st.text(string.ascii_letters + "éß×", min_size=1, max_size=8)


@given(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(NAMES, max_size=3),
)
def test_a_written_recipe_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, steps: int, lr: float, names: list[str]
) -> None:
    file = tmp_path_factory.mktemp("recipe") / "r.yaml"
    recipe = Recipe(
        train=Train(steps=steps, lr=lr, names=tuple(names)),
        sources=(Source(path=Path("a") / "b.jsonl"),),
    )
    write_recipe(recipe, file)
    assert load_recipe(Recipe, file) == recipe


def kind_of(tree: dict[str, object]) -> type[Section]:
    """The verb a shipped recipe is for, told by a section that only its recipes have."""
    if "drafter" in tree:
        kinds = {
            kind.model_fields["drafter"].default: kind for kind in TrainRecipe.__subclasses__()
        }
        return kinds[tree["drafter"]]
    if "sources" in tree:
        return PrepareRecipe
    if "groups" in tree:
        return Grid
    if "ablations" in tree:
        return PaperRecipe
    return DemoRecipe if "train" in tree else BenchRecipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_shipped_recipe_loads(path: Path) -> None:
    load_recipe(kind_of(yaml.safe_load(path.read_text("utf-8"))), path)


def test_a_problem_in_a_union_is_named_by_its_place_alone() -> None:
    for setting, place in (("k=0", "'k.0'"), ("k=[2, 300]", "'k.1'")):
        with pytest.raises(RecipeError) as caught:
            load_recipe(BenchRecipe, overrides=[setting])
        assert place in str(caught.value)
        assert "constrained" not in str(caught.value)
