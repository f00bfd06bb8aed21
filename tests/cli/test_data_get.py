from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagnn.cli import app
from dagnn.cli.data_get import Name
from dagnn.datasets import download


def test_names_are_those_of_the_downloads() -> None:
    assert {str(name) for name in Name} == set(download.DOWNLOADS)


def test_what_is_there_is_not_fetched(tmp_path: Path) -> None:
    mark = tmp_path / "ogbg_code2" / "raw" / "num-node-list.csv.gz"
    mark.parent.mkdir(parents=True)
    mark.touch()
    result = CliRunner().invoke(app, ["data", "get", "code2"], env={"DAGNN_DATA": str(tmp_path)})
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "ogbg_code2")
    assert "already" in result.stderr


def test_failed_download_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = download.Download("http://127.0.0.1:1/na", "na.txt")
    monkeypatch.setitem(download.DOWNLOADS, "na", nowhere)
    monkeypatch.setattr(download, "TRIES", 1)
    result = CliRunner().invoke(app, ["data", "get", "na", "--out", str(tmp_path)])
    assert isinstance(result.exception, OSError)
    assert "127.0.0.1:1/na" in str(result.exception)
