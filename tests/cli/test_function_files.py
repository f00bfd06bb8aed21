"""Functions of files that are named on the command line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer

from dagnn.cli.function_files import read_functions
from dagnn.datasets.corpus_parts import MAX_BYTES

FUNCTION = "def double(number):\n    return number + number * 1\n"


def test_functions_and_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text(FUNCTION)
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


def test_standard_input_is_a_file_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded as its first line says, and read once."""
    (tmp_path / "a.py").write_text(FUNCTION)
    content = "# coding: latin-1\ndef g(ä):\n    return ä\n".encode("latin-1")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8"))
    files, functions = read_functions(["-", str(tmp_path / "a.py"), "-"])
    assert files == ["<stdin>", str(tmp_path / "a.py")]
    assert [f.name for f in functions] == ["g", "double"]
    assert "ä" in functions[0].attribute


def test_a_method_may_be_piped_as_it_is_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"\n    def area(self):\n        return self.a * self.b\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    _, [function] = read_functions(["-"])
    assert (function.name, function.line) == ("area", 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def f(:\n", "<stdin>:1:7: syntax error:"),
        (b"x" * (MAX_BYTES + 2), "<stdin>: too large: more than 4194304 bytes"),
    ],
)
def test_bad_standard_input_is_named(
    content: bytes,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(typer.Exit) as ended:
        read_functions(["-"])
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith(said)


class Broken(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (None, "<stdin>: unreadable: it is closed\n"),
        (
            io.TextIOWrapper(io.BufferedReader(Broken())),
            "<stdin>: unreadable: [Errno 5] Input/output error\n",
        ),
    ],
)
def test_other_files_go_on_without_standard_input(
    stdin: object,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.py").write_text(FUNCTION)
    monkeypatch.setattr("sys.stdin", stdin)
    files, _ = read_functions(["-", str(tmp_path / "a.py")])
    assert files == [str(tmp_path / "a.py")]
    assert capsys.readouterr().err == said
