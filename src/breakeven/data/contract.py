"""What an artifact is of: the verifier, the rendering, the split. Checked before every use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from breakeven.config import Section
from breakeven.errors import DataError

if TYPE_CHECKING:
    from breakeven.verifier.identity import Identity

FILE = "contract.json"
CHECKED = ("weights_sha256", "tokenizer_sha256", "chat_template_sha256")


class Contract(Section):
    """The fields of ``contract.json``. Hashes are SHA-256 in hexadecimal, lengths are tokens.

    Continuations are greedy (``temperature`` 0), of at most ``max_continuation`` tokens with the
    end-of-sequence token included. ``splits`` counts rows, ``tokens`` continuation tokens.
    """

    format: Literal["breakeven-artifact/1"] = "breakeven-artifact/1"
    verifier: str
    weights_sha256: str
    tokenizer_sha256: str
    chat_template_sha256: str
    thinking: bool = False
    max_prompt: int
    max_continuation: int
    temperature: float = 0.0
    dtype: str
    eos: tuple[int, ...]
    seed: int
    splits: dict[str, int]
    tokens: dict[str, int]
    categories: dict[str, int]
    sources: dict[str, int]
    libraries: dict[str, str]

    @property
    def identity(self) -> Identity:
        """Whose continuations they are."""
        from breakeven.verifier.identity import Identity

        return Identity(
            self.verifier, self.weights_sha256, self.tokenizer_sha256, self.chat_template_sha256
        )

    def check(self, identity: Identity, where: Path | str = FILE) -> None:
        """Raise :class:`DataError` naming the first field in which the verifier differs."""
        for field in CHECKED:
            here, there = getattr(self, field), getattr(identity, field)
            if here != there:
                raise DataError(
                    f"{where}: {field} is {here[:12]}… (verifier '{self.verifier}'), but verifier "
                    f"'{identity.name}' has {there[:12]}…; use '{self.verifier}', or make an "
                    f"artifact for '{identity.name}' with `breakeven prepare`"
                )

    def write(self, folder: Path) -> None:
        """Write ``contract.json``; done last, it makes an artifact whole."""
        fresh = folder / f"{FILE}.new"
        fresh.write_text(self.model_dump_json(indent=2) + "\n")
        fresh.replace(folder / FILE)

    @staticmethod
    def read(folder: Path) -> Contract:
        """Read ``contract.json`` of an artifact. Raises :class:`DataError`."""
        path = folder / FILE
        if not folder.is_dir():
            raise DataError(f"{folder}: no such artifact; `breakeven prepare` makes one")
        if not path.is_file():
            begun = any(folder.glob("*.part")) or any(folder.glob("*.parquet"))
            raise DataError(
                f"{folder}: the artifact is half written ({FILE} is missing); run the same "
                "`breakeven prepare` again to finish it"
                if begun
                else f"{folder}: not an artifact ({FILE} is missing); `breakeven prepare` makes one"
            )
        try:
            return Contract.model_validate_json(path.read_bytes())
        except ValidationError as error:
            problem = error.errors()[0]
            field = ".".join(str(part) for part in problem["loc"]) or "the file"
            raise DataError(
                f"{path}: broken at {field} ({problem['msg']}); copy the artifact again or remake "
                "it with `breakeven prepare`"
            ) from None
