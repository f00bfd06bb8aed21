"""Cells in threads of one process are what they are alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dagnn.experiments.cells import TIMING, Cell
from dagnn.experiments.registry import make_entry
from dagnn.experiments.run_cell import Workplace
from dagnn.experiments.runner import Outcome, settle
from dagnn.experiments.streams import run_on_streams
from tests.autoencoders.na_file import write_architectures
from tests.experiments.test_runner import cell

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [("cpu", 8, 3), pytest.param("cuda", 501, 30, marks=[pytest.mark.cuda, needs_cuda])]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    write_architectures(tmp_path / "data" / "final_structures6.txt", 200)
    return tmp_path / "data"


def numbers(outcome: Outcome) -> dict[str, Any]:
    assert outcome.status == "done", outcome.reason
    assert outcome.record is not None
    content = outcome.record.content
    history = [row["loss"] for row in content["history"]]
    seeds = content["metrics"]["vfe"]["seeds"]
    return {"history": history, "rmse": seeds["rmse"], "pearson": seeds["pearson"]}


# On a GPU as wide as the paper's: only there do libraries use workspaces, which no two may share.
@pytest.mark.parametrize(("device", "hidden", "epochs"), DEVICES)
def test_as_alone(data: Path, tmp_path: Path, device: str, hidden: int, epochs: int) -> None:
    """Weights, noise, order and scores follow from each cell's own seed."""
    sizes = {"hidden_channels": hidden, "epochs": epochs}
    cells = [cell(**sizes, seed=seed) for seed in range(3)]
    cells += [cell(**sizes, model="gcn"), cell(**sizes, model="dagnn")]
    before = torch.get_float32_matmul_precision()
    found = list(
        run_on_streams(cells, tmp_path / "cells", Workplace(data, tmp_path / "a", device), 4)
    )
    assert torch.get_float32_matmul_precision() == before
    expected = [
        settle(each, tmp_path / "alone", Workplace(data, tmp_path / "b", device)) for each in cells
    ]
    by_id = {outcome.cell.id: numbers(outcome) for outcome in found}
    assert by_id == {outcome.cell.id: numbers(outcome) for outcome in expected}
    assert len({str(value["history"]) for value in by_id.values()}) == 5


def test_no_times(data: Path, tmp_path: Path) -> None:
    """Whoever shares a device has no time of its own; a cell that measures time runs alone."""
    place = Workplace(data, tmp_path / "runs", "cpu")
    timed = cell(scoring=None, purpose=TIMING)
    first, second = run_on_streams([timed, cell(seed=1)], tmp_path / "cells", place, 2)
    assert (first.cell.seed, second.cell.is_timing) == (1, True)
    assert first.record is not None
    assert second.record is not None
    assert "train_seconds" not in first.record.content["metrics"]
    assert all("train_seconds" not in row for row in first.record.content["history"])
    assert second.record.content["metrics"]["train_seconds"] > 0


def test_one_that_fails(data: Path, tmp_path: Path) -> None:
    place = Workplace(data, tmp_path / "runs", "cpu")
    bad = cell(options={"no_such_option": 1})
    baseline = Cell("baseline", {"task": "lp"})  # its data are not there
    outcomes = run_on_streams([bad, cell(), baseline], tmp_path / "cells", place, 2)
    assert sorted(o.status for o in outcomes) == ["done", "failed", "no data"]


def test_bad_input(data: Path, tmp_path: Path) -> None:
    place = Workplace(data, tmp_path / "runs", "cpu")
    for streams in (0, 17):
        with pytest.raises(ValueError, match=f"expected 1 to 16 streams, got {streams}"):
            list(run_on_streams([cell()], tmp_path / "cells", place, streams))
    assert list(run_on_streams([], tmp_path / "cells", replace(place), 2)) == []


def test_a_table_of_na() -> None:
    """The paper's cells of NA are such as can share a GPU."""
    cells = make_entry("table2", "paper").only(None, ["na"]).cells()
    assert len(cells) == 6
    assert all(each.kind == "autoencoder" for each in cells)
