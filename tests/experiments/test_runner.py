"""Cells are run once, whoever asks, and go on after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dagnn.experiments import runner
from dagnn.experiments.cells import Cell
from dagnn.experiments.records import read_records
from dagnn.experiments.registry import make_entry
from dagnn.experiments.run_cell import MARK, Workplace, bind, run_cell
from dagnn.experiments.runner import in_order, run_cells, settle
from tests.autoencoders.na_file import write_architectures
from tests.experiments.fake_records import make_record

SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")  # quick, where no tensor is computed
TINY = {
    "task": "na", "model": "s-vae", "hidden_channels": 8, "latent_channels": 3, "epochs": 2,
    "batch_size": 16, "rate": 1e-3, "clip": None, "options": {}, "graphs": 100,
    "scoring": {"seeds": 2, "options": {"vfe": {"num_inducing": 8, "steps": 3}}},
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    (tmp_path / "data").mkdir()
    write_architectures(tmp_path / "data" / "final_structures6.txt", 200)
    return Workplace(tmp_path / "data", tmp_path / "runs", "cpu")


def cell(seed: int = 0, **settings: Any) -> Cell:
    return Cell("autoencoder", {**TINY, **settings}, seed)


def fake_run(cell: Cell, place: Workplace) -> dict[str, Any]:
    """Leaves a line for each time it is called."""
    place.runs.mkdir(exist_ok=True)
    with open(place.runs / "calls.txt", "a", encoding="utf-8") as file:
        file.write(f"{cell.id}\n")
    time.sleep(0.05)
    return dict(make_record(cell, {"loss": 1.0}, seed=cell.seed, data=cell.data).content)


def calls(place: Workplace) -> list[str]:
    return (place.runs / "calls.txt").read_text(encoding="utf-8").split()


def test_run_for_real(place: Workplace, tmp_path: Path) -> None:
    outcome = settle(cell(), tmp_path / "cells", place)
    assert (outcome.status, outcome.reason) == ("done", "")
    (record,) = read_records(tmp_path / "cells")
    assert record.cell == bind(cell(), place.data)
    content = record.content
    assert content["data"]["name"] == "final_structures6"
    assert len(content["data"]["sha256"]) == 64
    assert (place.runs / record.cell.id / MARK).exists()
    assert len(content["history"]) == 2
    assert content["history"][1].keys() == {"epoch", "loss", "train_seconds"}
    assert len(content["metrics"]["vfe"]["seeds"]["rmse"]) == 2
    assert {"commit", "versions", "hardware", "seconds", "finished"} <= content.keys()
    again = settle(cell(), tmp_path / "cells", place)
    assert again.status == "kept"
    assert again.record == record
    assert settle(cell(epochs=3), tmp_path / "cells", place).status == "done"  # another cell
    assert len(read_records(tmp_path / "cells")) == 2


def test_a_killed_run_goes_on(place: Workplace, tmp_path: Path) -> None:
    """The history of the first epochs is that of the killed process."""
    long = bind(cell(epochs=60, scoring=None), place.data)
    folder = tmp_path / "cells"
    process = SPAWN.Process(target=settle, args=(long, folder, place))
    process.start()
    rows = place.runs / long.id / "metrics.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not (rows.exists() and len(rows.read_text().splitlines()) > 2):
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    before = [json.loads(line) for line in rows.read_text().splitlines()]
    assert not read_records(folder)
    assert len(before) < 60
    assert settle(long, folder, place).status == "done"
    history = read_records(folder)[0].content["history"]
    assert len(history) == 60
    assert history[1]["train_seconds"] == float(f"{before[1]['train_seconds']:.6g}")


@pytest.mark.parametrize("shared", [False, True])
def test_the_time_of_earlier_processes_counts(
    shared: bool, place: Workplace, tmp_path: Path
) -> None:
    mine = bind(cell(scoring=None), place.data)
    whole = settle(mine, tmp_path / "whole", place).record
    assert whole is not None
    assert whole.content["cpu_seconds"] > 0
    rows = place.runs / mine.id / "metrics.jsonl"
    of_shared = {"shared": True} if shared else {}
    told = [{**json.loads(r), "seconds": 1e6, **of_shared} for r in rows.read_text().splitlines()]
    rows.write_text("".join(json.dumps(row) + "\n" for row in told))
    again = settle(mine, tmp_path / "again", place).record
    assert again is not None
    assert again.content["seconds"] > 1e6 * len(told)
    assert "cpu_seconds" not in again.content  # that of the first process is not known
    assert again.content.get("shared", False) == shared


def settle_all(folder: Path, place: Workplace, count: int) -> None:
    for seed in range(count):
        settle(cell(seed), folder, place, fake_run)


def test_two_processes_share_a_folder(place: Workplace, tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    processes = [FORK.Process(target=settle_all, args=(folder, place, 12)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(calls(place)) == len(set(calls(place))) == 12
    assert len(read_records(folder)) == 12
    assert not list((folder / ".locks").iterdir())


def failing(cell: Cell, place: Workplace) -> dict[str, Any]:
    raise RuntimeError("no luck")


def test_failures_and_missing_data(place: Workplace, tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    outcome = settle(cell(), folder, place, failing)
    assert outcome.status == "failed"
    assert outcome.reason.startswith("RuntimeError: no luck (test_runner.py:")
    assert settle(cell(), folder, place, fake_run).status == "done"  # tried again
    outcome = settle(cell(), folder, replace(place, data=tmp_path / "nowhere"), fake_run)
    assert outcome.status == "no data"
    assert "dagnn data get na" in outcome.reason
    with pytest.raises(ValueError, match="expected the data 'other'"):
        run_cell(replace(cell(), data="other"), place)


def test_interruption_is_not_a_failure(place: Workplace, tmp_path: Path) -> None:
    def interrupted(cell: Cell, place: Workplace) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settle(cell(), tmp_path / "cells", place, interrupted)
    assert not read_records(tmp_path / "cells")
    assert settle(cell(), tmp_path / "cells", place, fake_run).status == "done"


def test_damaged_record_is_named(place: Workplace, tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    settle(cell(), folder, place, fake_run)
    (path,) = folder.glob("*.json")
    path.write_text("{}")
    with pytest.raises(ValueError, match=f"expected the record of a cell, got .*{path.name}: id, "):
        read_records(folder)


def test_in_processes(place: Workplace, tmp_path: Path) -> None:
    cells = [cell(seed, scoring=None, epochs=1) for seed in range(2)]
    outcomes = list(run_cells(cells, tmp_path / "cells", place, jobs=2))
    assert [outcome.status for outcome in outcomes] == ["done"] * 2
    assert {record.cell.seed for record in read_records(tmp_path / "cells")} == {0, 1}
    with pytest.raises(ValueError, match="expected jobs >= 1, got 0"):
        list(run_cells(cells, tmp_path / "cells", place, jobs=0))


def test_processes_share_a_gpu_but_where_time_is_measured(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is the runner's belief alone: what runs has a CPU."""
    monkeypatch.setattr(runner, "accelerator", lambda _: "cuda")
    pool, options = runner.ProcessPoolExecutor, {}

    def watched(*args: Any, **named: Any) -> Any:
        options.update(named)
        return pool(*args, **named)

    monkeypatch.setattr(runner, "ProcessPoolExecutor", watched)
    timing = cell(purpose="time", scoring=None, epochs=1)
    cells = [timing, *(cell(seed, scoring=None, epochs=1) for seed in range(2))]
    outcomes = list(run_cells(cells, tmp_path / "cells", place, jobs=2))
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    assert outcomes[-1].cell.config == timing.config
    # After an error of CUDA, a process could not use the device for another cell.
    assert options == {"max_tasks_per_child": 1}
    records = [outcome.record for outcome in outcomes]
    assert [record and record.is_shared for record in records] == [True, True, False]
    assert ["train_seconds" in record.metrics for record in records if record] == [
        False,
        False,
        True,
    ]


def test_a_single_run_has_the_gpu_to_itself(
    place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "accelerator", lambda _: "cuda")
    (outcome,) = run_cells([cell(scoring=None, epochs=1)], tmp_path / "cells", place, jobs=6)
    assert outcome.record is not None
    assert not outcome.record.is_shared


def test_closed_early_its_processes_end(place: Workplace, tmp_path: Path) -> None:
    """As when a scheduler interrupts the parent alone."""
    cells = [cell(seed, scoring=None, epochs=100_000 if seed else 1) for seed in range(3)]
    running = run_cells(cells, tmp_path / "cells", place, jobs=2)
    assert next(running).cell.seed == 0
    assert multiprocessing.active_children()
    running.close()
    assert not multiprocessing.active_children()
    assert len(read_records(tmp_path / "cells")) == 1


def test_order_reads_each_data_set_once() -> None:
    cells = in_order(make_entry("table3", "paper").cells([0]))
    keys = [(c.data_kind, c.settings.get("edges"), c.settings.get("train_share")) for c in cells]
    changes = sum(a != b for a, b in pairwise(keys))
    assert changes == len(set(keys)) - 1
