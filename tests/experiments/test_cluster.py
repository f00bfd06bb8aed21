"""Cells as tasks of a local Ray cluster with two workers."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagnn.experiments import cluster
from dagnn.experiments.cells import Cell
from dagnn.experiments.cluster import run_on_ray
from dagnn.experiments.records import read_records
from dagnn.experiments.run_cell import Workplace, bind
from tests.autoencoders.na_file import write_architectures
from tests.experiments.test_runner import TINY

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'dagnn[cluster]'")


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two workers here; Ray starts them as processes."""
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray keeps what it generates
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    (tmp_path / "data").mkdir()
    write_architectures(tmp_path / "data" / "final_structures6.txt", 200)
    return Workplace(tmp_path / "data", tmp_path / "runs", "cpu")


def cell(seed: int, **settings: Any) -> Cell:
    return Cell("autoencoder", {**TINY, "scoring": None, **settings}, seed)


@pytest.mark.usefixtures("local")
def test_two_workers_and_one_that_is_killed(place: Workplace, tmp_path: Path) -> None:
    """The killed worker's cell goes on from its checkpoint; the other loses nothing."""
    long = bind(cell(0, epochs=60), place.data)
    rows = place.runs / long.id / "metrics.jsonl"
    lock = tmp_path / "cells" / ".locks" / f"{long.id}.lock"
    killed: list[int] = []

    def kill_when_it_has_begun() -> None:
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            if rows.exists() and len(rows.read_text().splitlines()) > 2 and lock.exists():
                killed.append(json.loads(lock.read_text())["pid"])
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill_when_it_has_begun)
    killer.start()
    outcomes = list(run_on_ray([long, cell(1, epochs=1)], tmp_path / "cells", place))
    killer.join()
    assert killed
    assert {outcome.status for outcome in outcomes} == {"done"}
    records = {record.cell.seed: record for record in read_records(tmp_path / "cells")}
    assert len(records[0].content["history"]) == 60
    assert len(records[1].content["history"]) == 1
    again = list(run_on_ray([long], tmp_path / "cells", place))
    assert [outcome.status for outcome in again] == ["kept"]


def test_without_ray(monkeypatch: pytest.MonkeyPatch, place: Workplace, tmp_path: Path) -> None:
    def absent() -> Any:
        raise ValueError("expected Ray to be installed")

    monkeypatch.setattr(cluster, "_import_ray", absent)
    with pytest.raises(ValueError, match="expected Ray to be installed"):
        list(run_on_ray([cell(0)], tmp_path, place))
