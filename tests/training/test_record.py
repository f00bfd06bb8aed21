"""Records and JSON files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagnn import __version__
from dagnn.training import run_record, write_json
from dagnn.training.checkpoints import write_atomically


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
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})

    def fail(file: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ä"}
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
