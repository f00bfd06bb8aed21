"""``dagnn train na|bn`` and ``dagnn sample``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from dagnn.cli import app
from dagnn.datasets.architectures import parse_architectures, valid_architectures
from dagnn.datasets.training_data import training_data
from dagnn.training import read_checkpoint

ROW = "[[{}], [4, 0], [5, 0, 0], [0, 1, 1, 1], [{}, 1, 1, 1, 1], [3, 0, 0, 0, 0, 1]], 0.73\n"
TINY = ("--epochs", "1", "--hidden", "6", "--latent", "3", "--device", "cpu", "--quiet")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)


@pytest.fixture
def na(tmp_path: Path) -> Path:
    path = tmp_path / "na.txt"
    path.write_text("".join(ROW.format(i % 6, i // 6 % 6) for i in range(1100)))
    return path


@pytest.fixture
def bn(tmp_path: Path) -> Path:
    path = tmp_path / "bn.txt"
    path.write_text("[[1], [0, 1], [2, 0, 1]], -5.0\n[[2], [0, 1], [1, 0, 0]], -6.5\n" * 20)
    return path


def test_train_and_sample_architectures(na: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--data", na, "--out", out, "--layers", 3, "--pool", "all", "--json")
    record = json.loads(run("train", "na", *options, *TINY).stdout)
    assert record["config"]["options"] == {"num_layers": 3, "pool": "all"}
    assert record["config"]["hidden_channels"] == 6
    assert record["metrics"]["epochs"] == 1
    assert json.loads((out / "record.json").read_text()) == record
    graphs = json.loads(run("sample", out, "-n", 20, "--json").stdout)
    assert len(graphs) == 20
    assert all(u < v for graph in graphs for u, v in graph["edges"])
    for graph in graphs:
        assert (graph["row"] is not None) == graph["valid"]
    picture = tmp_path / "x.svg"
    result = run("sample", out / "last.ckpt", "-n", 3, "--out", picture)
    assert "of 3 graphs are valid" in result.stderr
    assert "<svg" in picture.read_text()
    with pytest.raises(ValueError, match=r"picture's name to end in .*, got x\.xyz"):
        run("sample", out, "--out", tmp_path / "x.xyz")


def test_a_finished_run_is_made_longer(bn: Path, tmp_path: Path) -> None:
    def train(out: str, epochs: int) -> dict[str, Any]:
        options = ("--data", bn, "--out", tmp_path / out, *TINY, "--epochs", epochs, "--json")
        return json.loads(run("train", "bn", *options).stdout)  # type: ignore[no-any-return]

    train("longer", 1)
    longer, whole = train("longer", 3), train("whole", 3)
    for name in ("config", "metrics"):
        assert longer[name] == whole[name]
    one, other = (
        read_checkpoint(tmp_path / out / "last.ckpt")["state_dict"] for out in ("longer", "whole")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(
        ValueError, match="longer is one of 3 epochs and cannot be made shorter, to 2"
    ):
        train("longer", 2)


def test_valid_samples_are_rows(na: Path, tmp_path: Path) -> None:
    options = ("--rate", "0.02", "--model", "s-vae", "--batch-size", 10)
    small = ("--epochs", "25", "--hidden", "24", "--latent", "3", "--device", "cpu", "--quiet")
    run("train", "na", "--data", na, "--out", tmp_path / "run", *options, *small)
    lines = run("sample", tmp_path / "run", "-n", 50, "--seed", 1).stdout.splitlines()
    assert lines
    assert valid_architectures(parse_architectures(f"{line}, 0" for line in lines)).all()


def test_train_networks_with_quality(bn: Path, tmp_path: Path) -> None:
    options = ("--data", bn, "--out", tmp_path / "run", "--model", "d-vae", "--unidirectional")
    result = run("train", "bn", *options, "--quality", *TINY)
    assert "36 graphs of" in result.stderr
    assert "reconstruction" in result.stdout
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["metrics"]["decoded"] == 10_000
    assert record["config"]["options"] == {"bidirectional": False}
    assert len(run("sample", tmp_path / "run", "-n", 2, "--likeliest").stderr.splitlines()) == 1


def test_a_missing_file_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGNN_DATA", str(tmp_path))
    for task, how in (("na", "dagnn data get na"), ("bn", "dagnn data bn")):
        with pytest.raises(ValueError, match=how):
            run("train", task)


def test_an_interrupted_run_knows_its_data(
    na: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning.pytorch.Trainer.fit", interrupted)
    run("train", "na", "--data", na, "--out", tmp_path / "run", *TINY)
    assert training_data(tmp_path / "run") == na


def test_a_gcn_as_published(na: Path, tmp_path: Path) -> None:
    options = ("--model", "gcn", "--as-published", "--data", na, "--out", tmp_path / "run")
    record = json.loads(run("train", "na", *options, *TINY, "--json").stdout)
    assert record["config"]["options"] == {"as_published": True}
    assert json.loads(run("sample", tmp_path / "run", "-n", 2, "--json").stdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--model gcn --layers 2 --cell gru", "gcn, got --layers (of dagnn), --cell (of dagnn); "),
        ("--model s-vae --unidirectional", "s-vae, got --unidirectional (of dagnn and d-vae); "),
        ("--as-published", "the model dagnn, got --as-published (of gcn); leave out"),
    ],
)
def test_an_option_of_another_model_is_refused(options: str, message: str) -> None:
    """Before the data are looked for."""
    with pytest.raises(ValueError, match=re.escape(message)):
        run("train", "na", "--data", "nowhere", *options.split())
