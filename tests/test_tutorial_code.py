"""docs/tutorial_code.md runs from beginning to end, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import read_page, run_page

ROOT = Path(__file__).parents[1]
PAGE = read_page("tutorial_code.md")


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page("tutorial_code.md", least=8)
    assert (tmp_path / "corpus" / "functions.parquet").exists()
    assert names["record"]["metrics"]["test_f1"] > 0.02


def test_commands_exist() -> None:
    from typer.testing import CliRunner

    from dagnn.cli import app

    commands = re.findall(r"^    dagnn ((?:(?:data|train) )?\w+) (.*)$", PAGE, re.MULTILINE)
    assert len(commands) >= 5
    for command, arguments in commands:
        result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, command
        for option in re.findall(r"--[\w-]+", arguments):
            assert option in result.output, (command, option)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
