from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dagnn.graph.files import check_folder, replacing


def test_content_is_on_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        assert os.fstat(handle).st_size == 3
        events.append("fsync")
        fsync(handle)

    def replaced(one: Path, other: Path) -> None:
        events.append("replace")
        replace(one, other)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with replacing(path) as unfinished:
        unfinished.write_bytes(b"new")
        assert not path.exists()
    assert events == ["fsync", "replace"]
    assert path.read_bytes() == b"new"


def test_a_file_is_no_folder_to_write_to(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "folder")
    file = tmp_path / "file.csv"
    file.write_text("a,b")
    for folder in (file, file / "below"):
        with pytest.raises(ValueError, match=rf"a folder .*\(--out\), got the file {file}$"):
            check_folder(folder)


def test_an_error_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    with replacing(tmp_path / "a" / "b" / "x") as unfinished:
        unfinished.write_text("content")
    assert (tmp_path / "a" / "b" / "x").read_text() == "content"


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    def written(path: Path, lost: bool) -> None:
        with replacing(path) as unfinished:
            if lost:
                path.parent.rmdir()
            unfinished.write_text("content")

    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as replaced:
        written(tmp_path / "folder", lost=False)
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(FileNotFoundError) as opened:
        written(tmp_path / "folder/x", lost=True)
    for error, name in ((replaced.value, "folder"), (opened.value, "folder/x")):
        assert error.filename == str(tmp_path / name)
        assert str(error).endswith(f"'{tmp_path / name}'")


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "x") as unfinished:
            unfinished.write_text("content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask
