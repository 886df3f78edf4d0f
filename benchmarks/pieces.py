"""A file in pieces, where one call may carry only so much.

python -m benchmarks.gpu_campaign --split model.gguf --piece-mb 24 --out pieces/
python -m benchmarks.gpu_campaign --weights pieces/model.gguf.*
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from breakeven.errors import DataError, RecipeError

CHUNK = 1 << 20
DIGEST = 16


def split(file: Path, folder: Path, nbytes: int) -> list[Path]:
    """Cut ``file`` into pieces of at most ``nbytes``; their names end in order and hash."""
    if not file.is_file():
        raise DataError(f"{file}: no such file to split")
    if nbytes < 1:
        raise RecipeError(f"pieces of {nbytes} bytes: give at least 1")
    folder.mkdir(parents=True, exist_ok=True)
    digest, pieces = hashed([file]), list[Path]()
    with file.open("rb") as source:
        while part := source.read(nbytes):
            piece = folder / f"{file.name}.{len(pieces):03d}.{digest}"
            piece.write_bytes(part)
            pieces.append(piece)
    return pieces


def join(pieces: Sequence[Path], folder: Path) -> Path:
    """The file that :func:`split` cut, from all of its pieces in any order."""
    missing = [str(piece) for piece in pieces if not piece.is_file()]
    if missing:
        raise DataError(f"{missing[0]}: no such piece")
    ordered = sorted(pieces, key=lambda piece: piece.name)
    stem, _, digest = ordered[0].name.rsplit(".", 2)
    if hashed(ordered) != digest:
        raise DataError(f"{len(pieces)} pieces of {stem}: not the whole file; give every piece")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / stem
    with file.open("wb") as target:
        for piece in ordered:
            target.write(piece.read_bytes())
    return file


def hashed(files: Sequence[Path]) -> str:
    """Of the contents one after another: the first hexadecimal digits of their SHA-256."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as source:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:DIGEST]
