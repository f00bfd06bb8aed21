"""docs/tutorial_architectures.md runs from beginning to end, and prints what its comments say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.autoencoders.na_file import write_architectures
from tests.pages import read_page, run_page

ROOT = Path(__file__).parents[1]
PAGE = read_page("tutorial_architectures.md")
FILE = "final_structures6.txt"
LINES = 1600  # with the 1,000 of the burn-in


def provide_data(folder: Path) -> None:
    """The head of NA's file where it is at hand, and otherwise random architectures."""
    folder.mkdir()
    real = Path(os.environ.get("DAGNN_DATA", ROOT.parent / "shared" / "data")) / FILE
    if real.exists():
        lines = real.read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / FILE).write_text("".join(lines[:LINES]), encoding="utf-8")
    else:
        write_architectures(folder / FILE, LINES - 1000)


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGNN_DATA", raising=False)
    names = run_page("tutorial_architectures.md", least=6)
    assert (tmp_path / "latent.png").read_bytes().startswith(b"\x89PNG")
    assert "coverage90" in names["score"].summary()


def test_commands_exist() -> None:
    from typer.testing import CliRunner

    from dagnn.cli import app

    commands = re.findall(r"^    dagnn ((?:train )?\w+)(?: (na|predictor))?", PAGE, re.MULTILINE)
    assert commands
    for words in commands:
        arguments = [*words[0].split(), *([words[1]] if words[1] else []), "--help"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, arguments


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
