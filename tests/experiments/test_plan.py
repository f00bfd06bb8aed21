"""Estimates come from what was measured, where something was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagnn.experiments.cost import estimate
from dagnn.experiments.data_files import DATA, find_data
from dagnn.experiments.plan import make_plan
from dagnn.experiments.registry import NAMES, PRESETS, make_entry
from tests.experiments.fake_records import latent_metrics, make_record


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_everything_can_be_estimated(name: str, preset: str) -> None:
    for cell in make_entry(name, preset).cells([0]):
        guess = estimate(cell, [])
        assert guess.seconds > 0
        assert not guess.is_measured


def test_larger_takes_longer() -> None:
    def seconds(column: str) -> float:
        (cell,) = make_entry("table1", "paper").only(["GCN"], [column]).cells([0])
        return estimate(cell, []).seconds

    assert seconds("tok") > 5 * seconds("tok-15")


def test_a_gpu_is_faster_and_its_times_are_its_own() -> None:
    (cell,) = make_entry("table2", "paper").only(["DAGNN"], ["na"]).cells()
    assert estimate(cell, []).seconds > 50 * estimate(cell, [], on_gpu=True).seconds > 50 * 60
    for gpu in (None, "NVIDIA H200"):
        hardware = {"cpus": 2, "gpu": gpu}
        records = [make_record(cell, latent_metrics([1.0], [0.0]), hardware=hardware)]
        assert estimate(cell, records, on_gpu=gpu is not None).is_measured
        assert not estimate(cell, records, on_gpu=gpu is None).is_measured


def test_measured_seconds_of_another_seed(tmp_path: Path) -> None:
    (tmp_path / "final_structures6.txt").touch()
    cells = make_entry("table2").only(["GCN"], None).cells([0, 1])
    first = next(cell for cell in cells if cell.task == "na")
    records = [make_record(first, latent_metrics([1.0], [0.0]), data="final_structures6")]
    plan = make_plan(cells, records, tmp_path)
    lines = {(line.name, line.state): line for line in plan.lines}
    done, open_ = (lines["autoencoder-na-gcn", state] for state in ("done", "to run"))
    assert (done.count, open_.count, open_.seconds, open_.is_measured) == (1, 1, 12.5, True)
    assert (plan.to_run, plan.seconds) == (1, 12.5)
    assert lines["autoencoder-bn-gcn", "no data"].count == plan.without_data == 2
    (help_line,) = plan.missing
    assert str(tmp_path) in help_line


def test_what_is_done_took_what_it_took(tmp_path: Path) -> None:
    (tmp_path / "final_structures6.txt").touch()
    cells = make_entry("table2").only(["GCN"], ["na"]).cells([0])
    hardware = {"cpus": 2, "gpu": "NVIDIA H200"}
    metrics = latent_metrics([1.0], [0.0])
    records = [make_record(cells[0], metrics, data="final_structures6", hardware=hardware)]
    (done,) = make_plan(cells, records, tmp_path, on_gpu=False).lines
    assert (done.state, done.seconds, done.is_measured) == ("done", 12.5, True)


def test_best_data_comes_first(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="dagnn data code --out"):
        find_data("code", tmp_path)
    for name in reversed(DATA["code"].names):
        (tmp_path / name).touch()
        assert find_data("code", tmp_path) == tmp_path / name
