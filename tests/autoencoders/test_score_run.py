from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import norm

from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.score_run import (
    PRESETS,
    distinct_graphs,
    predict_scores,
    process_options,
    score_run,
)
from dagnn.autoencoders.task_data import load_task
from dagnn.datasets.architectures import parse_architectures
from tests.autoencoders.na_file import write_architectures

ROW = "[[4], [0, 1], [2, 0, 1], [3, 1, 1, 0], [5, 0, 0, 0, 1], [1, 0, 1, 1, 1, 0]], 0"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An autoencoder trained on a file, and the file."""
    folder = tmp_path_factory.mktemp("runs")
    file = folder / "na.txt"
    write_architectures(file, 300)
    found = load_task("na", file)
    config = AutoencoderConfig(hidden_channels=12, latent_channels=6, epochs=2, batch_size=64)
    data = {"file": file.name, "sha256": found.fingerprint}
    fit_autoencoder(config, found.train, folder / "run", data=data, device="cpu", progress=False)
    return folder / "run", file


def test_score_is_recorded_and_predicts(run: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = run
    plot = tmp_path / "latent.png"
    record = score_run(
        folder, file, kinds=["vfe", "exact"], preset="quick", seeds=2, plot=plot, device="cpu"
    )
    assert json.loads((folder / "score.json").read_text()) == record
    assert list(record["metrics"]) == ["vfe", "exact"]
    for metrics in record["metrics"].values():
        assert len(metrics["seeds"]["rmse"]) == 2
        assert 0 < metrics["rmse"]["mean"] < 1.5
        assert len(metrics["seeds"]["late_change"]) == 2
        assert metrics["is_flat"] in (True, False)
    assert record["data"]["as_in_training"]
    assert plot.stat().st_size > 1000
    mean, std, low, high = predict_scores(folder, parse_architectures([ROW]), "na")
    assert 0.69 < mean.item() < 0.76
    assert low < mean < high
    torch.testing.assert_close((high - low) / std, torch.tensor([2 * norm.ppf(0.95)]))


def test_what_predicts_is_measured_on_the_test_graphs(run: tuple[Path, Path]) -> None:
    folder, file = run
    told: list[str] = []
    record = score_run(
        folder, file, kinds=["vfe"], preset="quick", seeds=2, device="cpu", tell=told.append
    )
    assert told == [
        "vfe: fitting seed 0 of 2", "vfe: fitting seed 1 of 2", "fitting the predictor"
    ]  # fmt: skip
    train, test, _ = load_task("na", file)
    mean, _, low, high = predict_scores(folder, test, "na")
    error = (mean - test.score).square().mean().sqrt() / train.score.std(correction=0)
    inside = ((low <= test.score) & (test.score <= high)).double().mean()
    assert record["predictor"]["rmse"] == pytest.approx(error.item(), rel=1e-4)
    assert record["predictor"]["coverage90"] == pytest.approx(inside.item())


def test_a_picture_that_cannot_be_is_refused_before_the_work(
    run: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = run
    told: list[str] = []
    quick: dict[str, Any] = {"kinds": ["vfe"], "preset": "quick", "seeds": 1, "device": "cpu"}
    (tmp_path / "file").touch()
    for plot in ("latent.txt", "file/latent.png"):
        with pytest.raises((ValueError, OSError)):
            score_run(folder, file, plot=tmp_path / plot, tell=told.append, **quick)
    assert not told
    (folder / "score.json").unlink(missing_ok=True)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("dagnn.autoencoders.score_run.draw_latent", fail)
    with pytest.raises(OSError, match="no space"):
        score_run(folder, file, plot=tmp_path / "latent.png", **quick)
    assert (folder / "score.json").exists()


def test_other_data_are_refused_or_told(run: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    write_architectures(other, 100, seed=1)
    quick: dict[str, Any] = {"kinds": ["vfe"], "preset": "quick", "seeds": 1, "device": "cpu"}
    kept = score_run(*run, **quick)
    with pytest.raises(ValueError, match=r"got others in .*other.txt.*--force"):
        score_run(run[0], other, **quick)
    assert json.loads((run[0] / "score.json").read_text())["data"] == kept["data"]
    assert not score_run(run[0], other, force=True, **quick)["data"]["as_in_training"]


def test_predictions_of_another_state_are_refused(run: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = run
    score_run(folder, file, kinds=["vfe"], preset="quick", seeds=1, device="cpu")
    for name in ("last.ckpt", "predictor.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    checkpoint["state_dict"]["model.mean.bias"] += 1
    torch.save(checkpoint, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"made from another state of last\.ckpt"):
        predict_scores(tmp_path, parse_architectures([ROW]), "na")


def test_bad_input(run: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = run
    with pytest.raises(ValueError, match="expected some of exact, vfe, fitc, svgp, got gp"):
        score_run(folder, file, kinds=["gp"])
    with pytest.raises(ValueError, match="expected preset paper or quick, got 'slow'"):
        score_run(folder, file, preset="slow", device="cpu")
    (tmp_path / "last.ckpt").write_bytes((folder / "last.ckpt").read_bytes())
    with pytest.raises(ValueError, match=r"predictor\.safetensors; make it with: dagnn score"):
        predict_scores(tmp_path, parse_architectures([ROW]), "na")
    with pytest.raises(FileNotFoundError, match="train one first"):
        score_run(tmp_path / "missing.ckpt", file, device="cpu")


def test_distinct_graphs_are_the_first_of_equal_ones() -> None:
    other, third = ROW.replace("[[4]", "[[5]"), ROW.replace("[0, 1]", "[0, 0]")
    graphs = parse_architectures([other, ROW, other, third, ROW])
    assert distinct_graphs(graphs).tolist() == [0, 1, 3]


@pytest.mark.parametrize("preset", PRESETS)
def test_options(preset: str) -> None:
    assert process_options("svgp", preset, "na").keys() == {"points", "num_inducing"}
    assert process_options("exact", preset, "na").keys() >= {"points", "fit_points", "steps"}
    assert process_options("fitc", preset, "bn")["points"] <= 5000
    assert process_options("fitc", "paper", "na")["points"] is None
    for kind in ("fitc", "vfe", "exact"):  # until it rests
        options = process_options(kind, "paper", "na")
        assert (options["steps"], options["tolerance"]) == (1000, 1e-4)
