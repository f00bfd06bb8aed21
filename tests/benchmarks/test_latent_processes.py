from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.latent_processes import main
from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.task_data import load_task
from tests.autoencoders.na_file import write_architectures


def test_one_latent_space_by_several_processes(tmp_path: Path) -> None:
    file, run = tmp_path / "na.txt", tmp_path / "run"
    write_architectures(file, 200)
    found = load_task("na", file)
    config = AutoencoderConfig(hidden_channels=8, latent_channels=4, epochs=1, batch_size=64)
    data = {"file": file.name, "sha256": found.fingerprint}
    fit_autoencoder(config, found.train, run, data=data, device="cpu", progress=False)
    where = ["--preset", "quick", "--device", "cpu", "--json", str(tmp_path / "r.json")]
    result = main([str(run), "--data", str(file), "--rates", "5e-4", "5e-2", *where])
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == result
    (scored,) = result["runs"]
    assert scored["data"]["sha256"] == found.fingerprint
    assert scored["epochs"] == 1
    rates = [(row["process"], row["options"].get("rate")) for row in scored["scores"]]
    assert rates == [("fitc", None), ("svgp", 5e-4), ("svgp", 5e-2)]
    # A rate of 5e-4 is too little to have begun: the prediction is all but the mean's.
    short, long = (row["rmse"]["mean"] for row in scored["scores"][1:])
    assert long < short < 1.5
    write_architectures(file, 200, seed=1)
    with pytest.raises(SystemExit, match="trained on, got others"):
        main([str(run), "--data", str(file), *where])
