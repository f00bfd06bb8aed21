from __future__ import annotations

from pathlib import Path

import pytest

from dagnn.datasets.training_data import keep_training_data, training_data


def test_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "seed0"
    run.mkdir(parents=True)
    assert training_data(run) is None
    keep_training_data(run, Path("corpus"), "abc")
    for place in (run, run / "best.ckpt", run.parent):
        assert training_data(place) == tmp_path / "corpus"
    keep_training_data(run.parent / "seed1", Path("other"), "def")
    assert training_data(run.parent) is None  # which of both?


def test_a_run_with_other_data_is_left_alone(tmp_path: Path) -> None:
    config, checkpoint = tmp_path / "config.json", tmp_path / "last.ckpt"
    config.write_text('{"data": {"file": "a.txt", "sha256": "abc"}}')
    keep_training_data(tmp_path, Path("b.txt"), "def")  # nothing came of what was there
    checkpoint.touch()
    keep_training_data(tmp_path, Path("c.txt"), "ghi")
    assert training_data(tmp_path) == Path("b.txt").absolute()
    keep_training_data(tmp_path, Path("a.txt"), "abc")
    for broken in ("{", "[]", "{}", '{"data": 1}'):
        config.write_text(broken)
        keep_training_data(tmp_path, Path("c.txt"), "abc")
        assert training_data(tmp_path) == Path("a.txt").absolute()
