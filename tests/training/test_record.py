"""Records and JSON files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dagnn import __version__
from dagnn.training import run_record, write_json
from dagnn.training.checkpoints import write_atomically
from dagnn.training.record import _commit_of


def test_a_record_says_what_led_to_the_result() -> None:
    record = run_record({"layers": 2}, {"f1": 0.5}, seed=3, seconds=1.23456, data={"name": "x"})
    assert (record["config"], record["metrics"]) == ({"layers": 2}, {"f1": 0.5})
    assert (record["seed"], record["seconds"], record["data"]) == (3, 1.235, {"name": "x"})
    assert record["versions"]["dagnn"] == __version__
    assert record["hardware"]["cpus"] >= 1
    json.dumps(record, allow_nan=False)


def test_json_files_are_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "x.json"
    write_json(path, {"a": "ä"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ä"}
    with pytest.raises(ValueError, match=r"x\.json, got nan in metrics\.f1, inf in rows\.1$"):
        write_json(path, {"metrics": {"f1": float("nan"), "n": 1}, "rows": (0.5, float("inf"))})

    def fail(file: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ä"}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


def test_commit_is_that_of_the_repository_that_has_the_file(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    file, foreign = tmp_path / "own.py", tmp_path / ".venv" / "record.py"
    foreign.parent.mkdir()
    for path in (file, foreign):
        path.touch()
    assert _commit_of(file) is None
    git("init", "-q")
    git("add", "own.py")
    git("commit", "-q", "-m", "one")
    assert _commit_of(file) == git("rev-parse", "HEAD")
    assert _commit_of(foreign) is None
    file.write_text("changed")
    assert _commit_of(file) == git("rev-parse", "HEAD") + "-dirty"
