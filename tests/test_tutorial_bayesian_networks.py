"""docs/tutorial_bayesian_networks.md runs from beginning to end, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import read_page, run_page

ROOT = Path(__file__).parents[1]
PAGE = read_page("tutorial_bayesian_networks.md")


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("tutorial_bayesian_networks.md", least=7)
    assert "<svg" in (tmp_path / "asia-network" / "index.html").read_text(encoding="utf-8")


def test_commands_have_the_options_of_the_page() -> None:
    from typer.testing import CliRunner

    from dagnn.cli import app

    result = CliRunner().invoke(app, ["bn", "learn", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    options = set(re.findall(r"^    dagnn bn learn .*$", PAGE, re.MULTILINE))
    assert options
    for option in set(re.findall(r"--[a-z-]+", " ".join(options))):
        assert option in result.output


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
