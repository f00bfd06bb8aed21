"""Functions of files that are named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from dagnn.cli.function_files import read_functions


def test_functions_and_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("def double(number):\n    return number + number * 1\n")
    (tmp_path / "b.py").write_text("def broken(:\n")
    files, functions = read_functions([str(tmp_path)])
    assert [Path(file).name for file in files] == ["a.py"]
    assert [function.name for function in functions] == ["double"]
    assert "b.py:1:12: syntax error" in capsys.readouterr().err


def test_no_functions_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert read_functions([str(tmp_path / "a.py")]) == ([], [])
    assert capsys.readouterr().err == "no functions in 1 file\n"
    (tmp_path / "a.py").write_text("def broken(:\n")
    with pytest.raises(typer.Exit):
        read_functions([str(tmp_path / "a.py")])
