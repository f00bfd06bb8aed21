from __future__ import annotations

import json
from pathlib import Path

from dagnn.datasets.training_data import training_data


def test_found(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "seed0"
    run.mkdir(parents=True)
    assert training_data(run) is None
    (run / "data.json").write_text(json.dumps({"path": "/corpus"}))
    for place in (run, run / "best.ckpt", run.parent):
        assert training_data(place) == Path("/corpus")
    (run.parent / "seed1").mkdir()
    (run.parent / "seed1" / "data.json").write_text(json.dumps({"path": "/other"}))
    assert training_data(run.parent) is None  # which of both?
