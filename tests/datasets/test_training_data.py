from __future__ import annotations

from pathlib import Path

import pytest

from dagnn.datasets.training_data import keep_training_data, training_data


def test_kept_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "seed0"
    run.mkdir(parents=True)
    assert training_data(run) is None
    keep_training_data(run, Path("corpus"))
    for place in (run, run / "best.ckpt", run.parent):
        assert training_data(place) == tmp_path / "corpus"
    keep_training_data(run.parent / "seed1", Path("other"))
    assert training_data(run.parent) is None  # which of both?
