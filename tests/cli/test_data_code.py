from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagnn.cli import app
from dagnn.datasets.code_dataset import load_code_dataset
from dagnn.datasets.corpus import CorpusReport

FUNCTION = "def {name}(self, {word}):\n    return self.{word} + {word}.value\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    for i in range(8):
        text = FUNCTION.format(name=f"name_{i}", word=f"word_{i}")
        (folder / f"module{i}.py").write_text(text)
    (folder / "broken.py").write_text("def broken(:\n")
    return folder


def test_corpus_and_report(code: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["data", "code", str(code), "--out", str(out), "--workers", "1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "8 functions in" in result.stdout
    assert "9 files of 9 projects, 0 parsed before" in result.stdout
    assert "code/broken.py: syntax error, line 1, column 12: invalid syntax" in result.stdout
    assert len(load_code_dataset(out).train) > 0

    again = CliRunner().invoke(app, [*command, "--json"])
    report = json.loads(again.stdout)
    assert report["reused_files"] == 9
    assert sum(report["functions"].values()) == 8


def test_one_project_is_split_by_file(code: Path, tmp_path: Path) -> None:
    (code / ".git").mkdir()
    command = ["data", "code", str(code), "--out", str(tmp_path / "out"), "--workers", "1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "Fewer than three projects have functions, so each file" in result.stderr
    data = load_code_dataset(tmp_path / "out")
    assert min(map(len, (data.train, data.valid, data.test))) > 0
    asked = CliRunner().invoke(app, [*command, "--split-by", "file"])
    assert "9 projects" in asked.stdout
    assert "Fewer" not in asked.stderr


def test_too_little_code_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FUNCTION.format(name="only", word="word"))
    command = ["data", "code", str(tmp_path / "a.py"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, "--workers", "1"])
    assert "No functions for valid and test: 1 function in all." in " ".join(result.stderr.split())


def test_small_splits_are_told(code: Path, tmp_path: Path) -> None:
    command = ["data", "code", str(code), "--out", str(tmp_path / "out"), "--workers", "1"]
    result = CliRunner().invoke(app, command)
    assert "Few functions for train and valid and test: 8 functions in all." in " ".join(
        result.stderr.split()
    )


@pytest.mark.parametrize(
    ("valid", "group", "told"),
    [
        (31, "project", "or another --seed, or --split-by file, which divides it otherwise."),
        (31, "file", "or another --seed, which divides it otherwise."),
        (40, "project", None),
    ],
)
def test_lopsided_splits_are_told(
    valid: int, group: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = {"train": 900 - valid, "valid": valid, "test": 100}
    report = CorpusReport("", 9, 0, 4, group, functions, 0, {}, [])
    monkeypatch.setattr("dagnn.datasets.corpus.build_corpus", lambda *_, **__: report)
    command = ["data", "code", str(tmp_path), "--out", str(tmp_path / "out"), "--split-by", group]
    said = " ".join(CliRunner().invoke(app, command).stderr.split())
    if told is None:
        assert "Few functions" not in said
    else:
        assert f"Few functions for valid: 1,000 functions in all. Give more code, {told}" in said


def test_folders_are_projects_and_entries_of_one_are_told(code: Path, tmp_path: Path) -> None:
    command = ["data", "code", str(code), "--workers", "1"]
    alone = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "alone")])
    assert f"{code} counts each of its 9 entries as a project; a folder with" in alone.stderr
    others = []
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(FUNCTION.format(name=name, word=f"{name}_word"))
        others.append(str(tmp_path / name))
    result = CliRunner().invoke(app, [*command, *others, "--out", str(tmp_path / "out")])
    assert "11 files of 3 projects" in result.stdout
    assert "1 file left out: syntax error" in result.stdout
    assert "entries" not in result.stderr
    asked = CliRunner().invoke(
        app, [*command, "--out", str(tmp_path / "asked"), "--split-by", "file"]
    )
    assert "entries" not in asked.stderr


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    script = "import sys; from dagnn.cli import main; sys.argv[0] = 'dagnn'; main()"
    command = [sys.executable, "-c", script, "data", "code", "no-such-thing"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.strip().startswith("dagnn: error: expected a file, a folder or the")
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
