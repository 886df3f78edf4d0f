"""The sources by name. Adding one takes a module, a field and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breakeven.config import Section
from breakeven.data.journal import Journal
from breakeven.data.prompt import Source
from breakeven.data.sources.jsonl import Jsonl, JsonlSettings
from breakeven.data.sources.magpie import Magpie, MagpieSettings
from breakeven.data.sources.sharegpt import Sharegpt, SharegptSettings
from breakeven.data.sources.templates import Templates, TemplateSettings
from breakeven.data.sources.tulu import Tulu, TuluSettings

MAGPIE_PART = "magpie.jsonl.part"

if TYPE_CHECKING:
    from breakeven.verifier.load import Loaded


class Sources(Section):
    """The section ``sources`` of a recipe: every source, none wanted by default."""

    templates: TemplateSettings = TemplateSettings()
    magpie: MagpieSettings = MagpieSettings()
    jsonl: JsonlSettings = JsonlSettings()
    tulu: TuluSettings = TuluSettings()
    sharegpt: SharegptSettings = SharegptSettings()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a source may use besides its settings. Without a ``folder`` nothing may be written.

    ``loaded`` is there for those that need a model.
    """

    loaded: Loaded | None
    folder: Path | None


def _magpie(settings: MagpieSettings, around: Surroundings) -> Source:
    assert around.folder is not None, "magpie writes a journal"
    assert around.loaded is not None, "magpie runs the model"
    identity = around.loaded.identity
    header = {
        "weights_sha256": identity.weights_sha256,
        "chat_template_sha256": identity.chat_template_sha256,
        **settings.model_dump(exclude={"count"}),
    }
    journal = Journal(around.folder / MAGPIE_PART, header)
    loaded = around.loaded
    return Magpie(settings, loaded.verifier, loaded.tokenizer, loaded.eos, journal)


SOURCES: dict[str, Callable[[Any, Surroundings], Source]] = {
    "templates": lambda settings, _: Templates(settings),
    "magpie": _magpie,
    "jsonl": lambda settings, around: Jsonl(settings, around.folder),
    "tulu": lambda settings, _: Tulu(settings),
    "sharegpt": lambda settings, _: Sharegpt(settings),
}
NEEDS_MODEL = frozenset({"magpie"})


def wanted(sources: Sources) -> list[str]:
    """The names of the sources a recipe asks for."""
    return [name for name in SOURCES if getattr(sources, name).wanted]


def build(name: str, sources: Sources, around: Surroundings) -> Source:
    """One of the wanted sources."""
    return SOURCES[name](getattr(sources, name), around)
