"""What the README and the docs tell people to type exists, and the Python they show runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.cli.app import VERBS, load

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)


def commands() -> Iterator[tuple[Path, list[str]]]:
    """Every command line in a console block, comments dropped, continuations joined."""
    for page in PAGES:
        for block in blocks(page, "console"):
            for line in block.replace("\\\n", " ").splitlines():
                if words := shlex.split(line.removeprefix("$ "), comments=True):
                    yield page, words


def typed(program: str) -> list[list[str]]:
    return [words for _, words in commands() if words[0] == program]


@pytest.mark.parametrize("words", typed("make"), ids=" ".join)
def test_a_make_target_that_is_named_exists(words: list[str]) -> None:
    assert {word for word in words[1:] if "=" not in word} <= TARGETS


@pytest.mark.parametrize("words", typed("breakeven"), ids=" ".join)
def test_a_verb_and_its_options_exist(words: list[str]) -> None:
    if words[1].startswith("-"):
        assert words[1] in ("--help", "--version")
        return
    assert words[1] in VERBS
    known = {name for param in load(words[1]).params for name in param.opts} | {"--help"}
    assert {word.split("=")[0] for word in words[2:] if word.startswith("-")} <= known


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "benchmarks").rglob("*.py"))], ids=lambda page: page.name
)
def test_benchmarks_are_run_as_modules_that_exist(page: Path) -> None:
    """As files they would not find each other."""
    text = page.read_text("utf-8")
    assert re.findall(r"\bpython3? benchmarks/\S*", text) == []
    for name in re.findall(r"\bpython3? -m (benchmarks(?:\.\w+)+)", text):
        module = ROOT.joinpath(*name.split("."))
        assert module.with_suffix(".py").is_file() or module.is_dir(), name


def test_the_recipes_that_are_named_exist() -> None:
    named = {w for _, words in commands() for w in words if w.startswith("recipes/")}
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_readme_names_every_verb() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"breakeven {verb}" in text or f"make {verb}" in text for verb in VERBS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    lost = [to for to in links if "://" not in to and not (page.parent / to).exists()]
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_of_local_links_are_headings(page: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*)#([^)\s]+)\)", page.read_text("utf-8"))
    for to, anchor in links:
        text = (page.parent / to if to else page).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings]
        assert anchor in slugs


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks(ROOT / "README.md", "python"))
def test_the_python_of_the_readme_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert float(re.findall(r"([\d.]+) tokens per verify pass", shown)[0]) >= 1.0


def test_the_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert script[-1] == "make test"
    assert ["make", "test"] in [words for page, words in commands() if page.name == "README.md"]
