"""A file is whole or not there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from breakeven.files import write_whole


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    for text in ("long enough to be cut\n", "é\n"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_half_a_surrogate_pair_is_a_question_mark(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "a\ud800b")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "a?b"


@pytest.mark.parametrize("name", ["n" * 250 + ".html", "漢" * 83 + ".json"])
def test_a_name_may_be_as_long_as_names_may_be(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / name, "x")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_full_disk_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def full(self: Path, text: str, encoding: str, errors: str) -> None:
        with self.open("w", encoding=encoding, errors=errors) as file:
            file.write(text[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"old"
