from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.random_tables import random_table
from benchmarks.structure_search import main, summarise
from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.task_data import load_task
from dagnn.bayesnet.generate import generate_networks
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import read_table
from dagnn.datasets.bayesian_networks import sample_asia, save_bayesian_networks

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
            "scored": 7,
        }
        for seed, found in enumerate((-1.0, -3.0))
    }
    summary = summarise(cells)["fixed/dagnn/plain"]
    assert (summary["seeds"], summary["mean_scored"]) == (2, 7.0)
    assert summary["found"] == {"at_optimum": 1, "mean_gap": 1.0}
    assert summary["hill_climbing"] == {"at_optimum": 0, "mean_gap": 1.0}
    assert "single_climb" not in summary


def test_one_trained_autoencoder_serves_all_seeds_in_processes(tmp_path: Path) -> None:
    table, file, run = tmp_path / "t.csv", tmp_path / "bn.txt", tmp_path / "run"
    sample_asia(200, seed=0)[["S", "L", "B"]].to_csv(table, index=False)
    save_bayesian_networks(file, generate_networks(FamilyScores(read_table(table)), 40))
    found = load_task("bn", file)
    config = AutoencoderConfig(task="bn", hidden_channels=8, latent_channels=4, epochs=1)
    data = {"sha256": found.fingerprint}
    fit_autoencoder(config, found.train, run, data=data, device="cpu", progress=False)
    given = ["--data", str(table), "--graphs", str(file), "--autoencoder", str(run)]
    given += [
        "--rounds",
        "1",
        "--batch",
        "2",
        "--device",
        "cpu",
        "--json",
        str(tmp_path / "r.json"),
    ]
    given += ["--pivots", "fixed", "--encoders", "dagnn", "--variants", "foreseen", "--jobs", "2"]
    result = main([*given, "--seeds", "0", "1"])
    assert set(result["cells"]) == {"fixed/dagnn/foreseen/0", "fixed/dagnn/foreseen/1"}
    assert all("autoencoder" not in cell["phases"] for cell in result["cells"].values())
    with pytest.raises(SystemExit, match="one of d-vae"):
        main([*given, "--seeds", "0", "--encoders", "d-vae"])
    file.write_text(file.read_text(encoding="utf-8") * 2, encoding="utf-8")
    with pytest.raises(SystemExit, match="other graphs"):
        main([*given, "--seeds", "2"])


def test_random_tables_follow_from_the_seed() -> None:
    table = random_table(8, 50, seed=1)
    assert (table.codes == random_table(8, 50, seed=1).codes).all()
    assert table.num_columns == 8
