from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.structure_search import main, random_table, summarise
from dagnn.datasets.bayesian_networks import sample_asia

SMALL = [
    "--rounds",
    "1",
    "--batch",
    "2",
    "--num-pivots",
    "40",
    "--epochs",
    "1",
    "--hidden",
    "8",
    "--device",
    "cpu",
]


def test_cells_are_kept_and_not_run_again(tmp_path: Path) -> None:
    sample_asia(200, seed=0)[["S", "L", "B"]].to_csv(tmp_path / "t.csv", index=False)
    where = ["--data", str(tmp_path / "t.csv"), "--work", str(tmp_path / "work")]
    where += ["--json", str(tmp_path / "r.json"), "--pivots", "random", "--seeds", "0"]
    first = main([*SMALL, *where, "--encoders", "dagnn", "--variants", "plain"])
    assert list(first["cells"]) == ["random/dagnn/plain/0"]
    again = main([*SMALL, *where, "--encoders", "dagnn", "random", "--variants", "plain"])
    assert list(again["cells"]) == ["random/dagnn/plain/0", "random/random/plain/0"]
    assert again["cells"]["random/dagnn/plain/0"] == first["cells"]["random/dagnn/plain/0"]
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == again
    assert again["summary"]["random/dagnn/plain"]["never_below_best_pivot"]
    with pytest.raises(SystemExit, match="other sizes"):
        main([*SMALL, *where, "--rounds", "2"])


def test_summary_counts_optima() -> None:
    cells = {
        f"fixed/dagnn/plain/{seed}": {
            "exact": -1.0,
            "found": found,
            "best_pivot": -5.0,
            "hill_climbing": -2.0,
        }
        for seed, found in enumerate((-1.0, -3.0))
    }
    summary = summarise(cells)["fixed/dagnn/plain"]
    assert (summary["seeds"], summary["at_optimum"], summary["mean_gap"]) == (2, 1, 1.0)
    assert summary["mean_gap_of_hill_climbing"] == 1.0


def test_random_tables_follow_from_the_seed() -> None:
    table = random_table(8, 50, seed=1)
    assert (table.codes == random_table(8, 50, seed=1).codes).all()
    assert table.num_columns == 8
