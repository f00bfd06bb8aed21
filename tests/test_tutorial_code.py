"""docs/tutorial_code.md runs from beginning to end, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial_code.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "tutorial"}
    assert len(BLOCKS) >= 8
    for block in BLOCKS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "tutorial_code.md", "exec"), names)
        promised = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        lines = printed.getvalue().splitlines()
        assert [line for line in lines if line in promised] == promised
    assert (tmp_path / "corpus" / "functions.parquet").exists()
    assert names["record"]["metrics"]["test_f1"] > 0.02  # type: ignore[index]


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
