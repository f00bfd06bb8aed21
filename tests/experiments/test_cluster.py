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

from dagnn.experiments.cells import Cell
from dagnn.experiments.cluster import run_on_ray
from dagnn.experiments.records import read_records
from dagnn.experiments.run_cell import Workplace, bind
from tests.autoencoders.na_file import write_architectures
from tests.experiments.test_runner import TINY
from tests.ray_cluster import two_workers, within

LIMIT = 300  # seconds; only a test that fails takes so long


@pytest.fixture(scope="module")
def local() -> Iterator[None]:
    with two_workers():
        yield


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
    long = bind(cell(0, epochs=40), place.data)
    run = place.runs / long.id
    lock = tmp_path / "cells" / ".locks" / f"{long.id}.lock"
    before: list[dict[str, Any]] = []
    killed: list[int] = []

    def kill_when_it_has_begun() -> None:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if (run / "last.ckpt").exists() and lock.exists():
                lines = (run / "metrics.jsonl").read_text().splitlines()
                # The checkpoint of an epoch comes after its line: the last may be done again.
                before.extend(json.loads(line) for line in lines[:-1])
                if before:
                    killed.append(json.loads(lock.read_text())["pid"])
                    os.kill(killed[0], signal.SIGKILL)
                    return
            time.sleep(0.02)

    killer = threading.Thread(target=kill_when_it_has_begun, daemon=True)
    killer.start()
    cells = [long, cell(1, epochs=1)]
    outcomes = within(LIMIT, lambda: list(run_on_ray(cells, tmp_path / "cells", place)))
    killer.join(LIMIT)
    assert killed
    assert {outcome.status for outcome in outcomes} == {"done"}, outcomes
    records = {record.cell.seed: record for record in read_records(tmp_path / "cells")}
    assert len(records[1].content["history"]) == 1
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == len(records[0].content["history"]) == 40
    # Durations would not be the same to the last digit if these epochs had been run again.
    assert [json.loads(line) for line in lines[: len(before)]] == before
    again = within(LIMIT, lambda: list(run_on_ray([long], tmp_path / "cells", place)))
    assert [outcome.status for outcome in again] == ["kept"]


@pytest.mark.usefixtures("local")
def test_cells_that_share_a_gpu_say_so_but_where_time_is_measured(
    place: Workplace, tmp_path: Path
) -> None:
    cells = [cell(0, epochs=1), cell(1, epochs=1), cell(2, epochs=1, purpose="time")]
    outcomes = within(LIMIT, lambda: list(run_on_ray(cells, tmp_path, place, gpus=0.5)))
    records = [outcome.record for outcome in outcomes]
    assert {r.cell.seed: r.is_shared for r in records if r} == {0: True, 1: True, 2: False}
