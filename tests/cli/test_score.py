"""``dagnn score``, ``dagnn predict`` and ``dagnn train predictor``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner, Result

from dagnn.autoencoders import score_run
from dagnn.autoencoders.score_run import score_points
from dagnn.cli import app
from dagnn.cli.score import _print_table
from tests.autoencoders.interruption import interrupted_after
from tests.autoencoders.na_file import write_architectures

ARCHITECTURE = "[[4],[0,1],[2,0,1],[3,1,1,0],[5,0,0,0,1],[1,0,1,1,1,0]]"
TINY = ("--epochs", "1", "--hidden", "6", "--latent", "3", "--device", "cpu", "--quiet")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of dagnn train na, and its data."""
    folder = tmp_path_factory.mktemp("na")
    data = folder / "final_structures6.txt"
    write_architectures(data, 200)
    run("train", "na", "--data", data, "--out", folder / "run", *TINY)
    return folder / "run", data


def test_score_then_predict(
    trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = trained
    monkeypatch.setenv("DAGNN_DATA", str(data.parent))
    plot = tmp_path / "latent.svg"
    result = run("score", folder, "--gp", "vfe", "--gp", "svgp", "--seeds", 2, "--plot", plot)
    assert "RMSE" in result.stdout
    assert "±" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines()[1:])
    assert "latent.svg" in result.stderr
    assert "<svg" in plot.read_text(encoding="utf-8")
    answer = run("predict", "na", ARCHITECTURE, ARCHITECTURE, "-c", folder, "--json").stdout
    first, second = json.loads(answer)
    assert first["accuracy"] == pytest.approx(second["accuracy"], rel=1e-5)
    assert first["architecture"] == json.loads(ARCHITECTURE)
    low, high = first["interval90"]
    assert 0.6 < low < first["accuracy"] < high < 0.9
    words = run("predict", "na", ARCHITECTURE, "-c", folder / "last.ckpt").stdout
    assert words.startswith(f"{first['accuracy']:.4f} ± {first['std']:.4f}  90 %: {low:.4f} to")


def test_the_graphs_of_the_training_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they were, or by their name in the folder of data, and never others."""
    data, elsewhere, out = tmp_path / "my.txt", tmp_path / "elsewhere", tmp_path / "run"
    write_architectures(data, 100)
    monkeypatch.chdir(tmp_path)
    run("train", "na", "--data", "my.txt", "--out", out, *TINY)
    config = (out / "config.json").read_text()
    assert str(tmp_path) not in config  # where the data lie is no part of what the run is
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("DAGNN_DATA", str(elsewhere))
    score = ("score", out, "--seeds", 1, "--json")

    def used() -> str:
        result = run(*score)
        assert json.loads(result.stdout)["data"]["as_in_training"]
        return "".join(result.stderr.split())

    assert f"withthegraphsof{data}" in used()
    write_architectures(elsewhere / "final_structures6.txt", 100, seed=1)
    assert f"withthegraphsof{data}" in used()
    moved = data.rename(elsewhere / "my.txt")
    assert f"withthegraphsof{moved}" in used()
    write_architectures(moved, 100, seed=2)
    wanted = (
        r"expected the graphs that .*run was trained on \(my\.txt, SHA-256 [0-9a-f]{64}\), but "
        r"\S*my\.txt is not there, \S*elsewhere/my\.txt holds others, "
        r"\S*final_structures6\.txt holds others; give --data"
    )
    for command in (score, ("search", "na", out)):
        with pytest.raises(ValueError, match=wanted):
            run(*command)


def test_a_run_that_is_not_finished_is_said(tmp_path: Path) -> None:
    data, out = tmp_path / "na.txt", tmp_path / "run"
    write_architectures(data, 100)
    with interrupted_after(1):
        run("train", "na", "--data", data, "--out", out, *TINY, "--epochs", 3)
    result = run("score", out, "--seeds", 1, "--json")
    assert "last.ckpthas1of3epochs;itisscoredasitis" in "".join(result.stderr.split())
    assert json.loads(result.stdout)["checkpoint"].items() >= {"epochs": 1, "of_epochs": 3}.items()


def test_no_number_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """On 80 columns, which is what a pipe has."""
    wide = {"mean": 1234.5678, "std": 1234.5678}
    measures = dict.fromkeys(("rmse", "pearson", "kendall", "coverage90"), wide)
    record = {
        "config": {"checkpoint": "runs/na-dagnn-0/last.ckpt", "seeds": 10},
        "metrics": {"vfe": measures},
        "predictor": {"rmse": 1.0, "coverage90": 0.9},
    }
    _print_table(record)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "vfe" in line)
    assert line.split() == ["vfe", *["1234.568", "±", "1234.568"] * 4]


@pytest.mark.parametrize("command", ["na", "predictor na"])
def test_a_rate_of_zero_is_refused(
    command: str, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    words = ["train", *command.split(), "--data", trained[1], "--out", tmp_path / "run"]
    with pytest.raises(ValueError, match="expected a learning rate above 0, got 0"):
        run(*words, "--rate", 0, "--quiet")


def test_progress_and_the_predictor_are_told(trained: tuple[Path, Path]) -> None:
    result = run("score", trained[0], "--data", trained[1], "--seeds", 1)
    assert "vfe: fitting seed 0 of 1" in result.stderr
    assert "epochs" not in result.stderr
    assert "Predictor, kept with it: RMSE" in result.stdout
    with pytest.raises(FileNotFoundError, match="train one first"):
        run("score", trained[0].parent / "nothing")


def test_a_fit_that_did_not_come_to_rest_is_told(
    trained: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {**score_run.PRESETS["quick"], "steps": 3}
    monkeypatch.setattr(score_run, "PRESETS", {**score_run.PRESETS, "quick": short})
    result = run("score", trained[0], "--data", trained[1], "--seeds", 1, "--json")
    assert "fit of vfe had not come to rest" in " ".join(result.stderr.split())
    assert not json.loads(result.stdout)["metrics"]["vfe"]["is_flat"]


def test_score_as_json_on_other_data(trained: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    write_architectures(other, 100, seed=1)
    result = run("score", trained[0], "--data", other, "--seeds", 1, "--json", "--force")
    record = json.loads(result.stdout)
    assert list(record["metrics"]) == ["vfe"]
    assert "may have been seen" in " ".join(result.stderr.split())


def test_bayesian_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal graphs are one latent point."""
    fitted: list[Tensor] = []

    def watched(train: tuple[Tensor, Tensor], *others: Any) -> dict[str, Any]:
        fitted.append(train[0])
        return score_points(train, *others)

    monkeypatch.setattr(score_run, "score_points", watched)
    data = tmp_path / "bn.txt"
    rows = [f"[[1], [0, {a}], [2, {b}, {c}]], {-5.0 + a + b * c}\n"
            for a in (0, 1) for b in (0, 1) for c in (0, 1)]  # fmt: skip
    data.write_text("".join(rows * 10))
    run("train", "bn", "--data", data, "--out", tmp_path / "run", *TINY)
    result = run("score", tmp_path / "run", "--data", data, "--gp", "exact", "--json")
    metrics = json.loads(result.stdout)["metrics"]["exact"]
    (points,) = fitted
    assert len(points) == 8  # of 72 training graphs
    assert torch.pdist(points).min() > 1e-4
    assert metrics["options"]["points"] == 3000
    assert metrics["rmse"]["mean"] < 2
    with pytest.raises(ValueError, match="expected a run of task 'na', got 'bn'"):
        run("predict", "na", ARCHITECTURE, "-c", tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os')", r"expected an architecture as \[\[op\], .*got \"__import__"),
        ("[[4],[0,1]]", "expected a list of 6 rows, got 2"),
        (ARCHITECTURE.replace("[4]", "[9]"), "expected labels from 0 to 5, got 9 in row 0"),
        (ARCHITECTURE.replace("[0,1]", "[0,7]"), "expected bits 0 and 1 .*row 1"),
        (ARCHITECTURE.replace("[0,1]", "[0,1,1]"), "a bit may point to an earlier row only"),
        ("[" * 100_000, "expected an architecture"),
    ],
)
def test_architectures_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("predict", "na", text)


def test_train_predictor(trained: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "predictor"
    options = ("--epochs", 2, "--hidden", 8, "--device", "cpu", "--quiet", "--out", out)
    record = json.loads(
        run("train", "predictor", "na", "--data", trained[1], *options, "--json").stdout
    )
    assert record["metrics"].keys() >= {"rmse", "pearson", "kendall"}
    words = run("train", "predictor", "na", "--data", trained[1], *options).stdout
    assert f"RMSE {record['metrics']['rmse']:.3f}" in words
