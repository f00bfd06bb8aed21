from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagnn.cli import app
from dagnn.datasets.bayesian_networks import load_bayesian_networks
from tests.bayesnet.cases import asia_path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["data", "bn", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_asia_by_default(tmp_path: Path) -> None:
    path = tmp_path / "bn.txt"
    summary = json.loads(run("--out", path, "--graphs", 500, "--seed", 3, "--json"))
    graphs = load_bayesian_networks(path)
    assert len(graphs) == summary["graphs"] == 500
    assert graphs.num_types == 10
    assert summary["variables"] == list("ASTLBEXD")
    assert summary["best"] == graphs.score.max().item()
    first = path.read_bytes()
    run("--out", path, "--graphs", 500, "--seed", 3, "--force")
    assert path.read_bytes() == first
    with pytest.raises(ValueError, match=r"got .*bn\.txt, which is there already; .*--force"):
        run("--out", path, "--graphs", 500, "--seed", 4)
    assert path.read_bytes() == first
    run("--out", path, "--graphs", 500, "--seed", 4, "--force")
    assert path.read_bytes() != first


def test_where_the_file_goes(tmp_path: Path) -> None:
    run("--out", tmp_path / "new" / "bn.txt", "--graphs", 5)
    assert len(load_bayesian_networks(tmp_path / "new" / "bn.txt")) == 5
    with pytest.raises(ValueError, match=f"expected a file to write, got the folder {tmp_path};"):
        run("--out", tmp_path, "--graphs", 5, "--force")


def test_any_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\nx,1,0.5\ny,2,\nx,,2.5\ny,1,1.5\n", encoding="utf-8")
    path = tmp_path / "bn.txt"
    line = run(
        "--variables",
        tmp_path / "t.csv",
        "--out",
        path,
        "--graphs",
        20,
        "--order",
        "uniform",
        "--score",
        "k2",
        "--bins",
        2,
        "--missing",
    )
    assert "20 networks over 3 variables, K2" in line
    assert len(load_bayesian_networks(path)) == 20


def test_bad_tables_leave_no_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n0.5,1\n0.25,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="numbers in a"):
        run("--variables", tmp_path / "t.csv", "--out", tmp_path / "bn.txt")
    assert not (tmp_path / "bn.txt").exists()


def test_real_table(tmp_path: Path) -> None:
    summary = json.loads(
        run("--variables", asia_path(), "--out", tmp_path / "bn.txt", "--graphs", 2000, "--json")
    )
    assert summary["mean"] == pytest.approx(-13_822, abs=100)
    assert summary["best"] < -11_107.29
