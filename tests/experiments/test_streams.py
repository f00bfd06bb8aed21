"""Cells in threads of one process are what they are alone."""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from dagnn.experiments import streams
from dagnn.experiments.cells import TIMING, Cell
from dagnn.experiments.cost import estimate
from dagnn.experiments.run_cell import Workplace
from dagnn.experiments.runner import Outcome, settle
from dagnn.experiments.streams import can_share, run_on_streams
from dagnn.training import read_checkpoint
from tests.autoencoders.na_file import write_architectures
from tests.experiments.test_runner import cell, fake_run

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [("cpu", 8, 3), pytest.param("cuda", 501, 30, marks=[pytest.mark.cuda, needs_cuda])]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    write_architectures(tmp_path / "data" / "final_structures6.txt", 200)
    return tmp_path / "data"


def scores(outcome: Outcome) -> dict[str, Any]:
    assert outcome.status == "done", outcome.reason
    assert outcome.record is not None
    seeds: dict[str, Any] = outcome.record.metrics["vfe"]["seeds"]
    return {name: seeds[name] for name in ("rmse", "pearson")}


def weights(runs: Path, outcome: Outcome) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = read_checkpoint(runs / outcome.cell.id / "last.ckpt")[
        "state_dict"
    ]
    return state


# On a GPU as wide as the paper's: only there do libraries use workspaces, which no two may share.
@pytest.mark.parametrize(("device", "hidden", "epochs"), DEVICES)
def test_as_alone(data: Path, tmp_path: Path, device: str, hidden: int, epochs: int) -> None:
    """Weights, noise, order and scores follow from each cell's own seed."""
    sizes = {"hidden_channels": hidden, "epochs": epochs}
    cells = [cell(**sizes, seed=seed) for seed in range(3)]
    cells += [cell(**sizes, model="gcn"), cell(**sizes, model="dagnn")]
    together, apart = (Workplace(data, tmp_path / name, device) for name in ("a", "b"))
    before = torch.get_float32_matmul_precision()
    found = {o.cell.id: o for o in run_on_streams(cells, tmp_path / "cells", together, 4)}
    assert torch.get_float32_matmul_precision() == before
    expected = [settle(each, tmp_path / "alone", apart) for each in cells]
    assert len(found) == len(expected) == 5
    for outcome in expected:
        other = found[outcome.cell.id]
        assert scores(other) == scores(outcome)
        ours, theirs = weights(together.runs, other), weights(apart.runs, outcome)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_linear_algebra_is_loaded_before_threads_begin(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's, for a GPU: it must not be loaded twice at once."""
    threads: list[int] = []
    eye = torch.eye
    monkeypatch.setattr(streams, "_on_gpu", lambda _: True)
    monkeypatch.setattr(streams, "_stream", lambda _: nullcontext())
    monkeypatch.setattr(torch, "eye", lambda size, device: eye(size))
    monkeypatch.setattr(
        torch.linalg, "cholesky", lambda _: threads.append(threading.active_count())
    )
    before = threading.active_count()
    place = Workplace(data, tmp_path / "runs", "cpu")
    assert list(run_on_streams([cell(scoring=None)], tmp_path / "cells", place, 2))
    assert threads == [before]


def test_the_process_is_left_as_it_was(data: Path, tmp_path: Path) -> None:
    """Filters of warnings and levels of loggers, which runs change that overlap."""
    names = ("lightning.pytorch", "lightning.fabric")
    filters = list(warnings.filters)
    levels = [logging.getLogger(name).level for name in names]
    place = Workplace(data, tmp_path / "runs", "cpu")
    cells = [cell(seed=seed, epochs=1 + seed % 3, scoring=None) for seed in range(6)]
    assert len(list(run_on_streams(cells, tmp_path / "cells", place, 3))) == 6
    assert warnings.filters == filters
    assert [logging.getLogger(name).level for name in names] == levels


def test_times_of_those_who_share(data: Path, tmp_path: Path) -> None:
    """Whoever shares a device has no time of its own, also if it goes on alone; a cell that
    measures time runs alone."""
    place = Workplace(data, tmp_path / "runs", "cpu")
    timed = cell(scoring=None, purpose=TIMING)
    cells = [timed, cell(seed=1), cell(seed=2)]
    *shared, last = run_on_streams(cells, tmp_path / "cells", place, 2)
    assert last.cell.is_timing
    assert last.record is not None
    assert last.record.metrics["train_seconds"] > 0
    assert last.record.content["cpu_seconds"] > 0
    assert not last.record.is_shared
    again = settle(cell(seed=1), tmp_path / "other", place)  # its training is finished already
    for outcome in (*shared, again):
        assert outcome.record is not None
        assert "train_seconds" not in outcome.record.metrics
        assert all("train_seconds" not in row for row in outcome.record.content["history"])
    for outcome in shared:
        assert outcome.record is not None
        assert outcome.record.is_shared
        assert "cpu_seconds" not in outcome.record.content
        assert not estimate(outcome.cell, [outcome.record]).is_measured


def test_one_alone_has_its_times(data: Path, tmp_path: Path) -> None:
    place = Workplace(data, tmp_path / "runs", "cpu")
    (outcome,) = run_on_streams([cell()], tmp_path / "cells", place, 4)
    assert outcome.record is not None
    assert outcome.record.metrics["train_seconds"] > 0
    assert not outcome.record.is_shared


def test_one_that_fails(data: Path, tmp_path: Path) -> None:
    place = Workplace(data, tmp_path / "runs", "cpu")
    bad = cell(options={"no_such_option": 1})
    baseline = Cell("baseline", {"task": "lp"})  # its data are not there
    outcomes = run_on_streams([bad, cell(), baseline], tmp_path / "cells", place, 2)
    assert sorted(o.status for o in outcomes) == ["done", "failed", "no data"]


def test_closed_early(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not begun does not begin any more."""
    begun = []

    def slow(each: Cell, folder: Path, place: Workplace) -> Outcome:
        begun.append(each.seed)
        return settle(each, folder, place, fake_run)

    monkeypatch.setattr(streams, "settle", slow)
    place = Workplace(data, tmp_path / "runs", "cpu")
    running = run_on_streams([cell(seed=s) for s in range(40)], tmp_path / "cells", place, 2)
    next(running)
    running.close()
    at_most = len(begun) + 2  # a thread each may have taken one just then
    for thread in threading.enumerate():
        if thread.daemon and thread.name.startswith("Thread") and thread.is_alive():
            thread.join(timeout=30)
    assert len(begun) <= at_most < 40


def test_an_error_of_a_thread_reaches_the_caller(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exits(each: Cell, folder: Path, place: Workplace) -> Outcome:
        raise SystemExit(3)

    monkeypatch.setattr(streams, "settle", exits)
    place = Workplace(data, tmp_path / "runs", "cpu")
    with pytest.raises(SystemExit, match="3"):
        list(run_on_streams([cell(seed=s) for s in range(3)], tmp_path / "cells", place, 2))


def test_bad_input(data: Path, tmp_path: Path) -> None:
    place = Workplace(data, tmp_path / "runs", "cpu")
    for number in (0, 17):
        with pytest.raises(ValueError, match=f"expected 1 to 16 streams, got {number}"):
            list(run_on_streams([cell()], tmp_path / "cells", place, number))
    assert list(run_on_streams([], tmp_path / "cells", place, 2)) == []


def test_who_can_share() -> None:
    assert can_share(cell())
    assert not can_share(cell(purpose=TIMING))
    assert not can_share(Cell("baseline", {"task": "lp"}))
