from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagnn.bayesnet.network import BayesianNetwork
from dagnn.cli import app
from dagnn.datasets.bayesian_networks import sample_asia

FAST = ("--rounds", 1, "--batch", 2, "--num-pivots", 40, "--epochs", 1, "--hidden", 8)
FILES = {
    "index.html",
    "network.bif",
    "network.dot",
    "network.json",
    "network.png",
    "network.svg",
    "report.json",
}


def run(*arguments: object) -> str:
    words = ["bn", "learn", *map(str, (*arguments, *FAST, "--device", "cpu"))]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "asia.csv"
    sample_asia(300, seed=2)[["S", "L", "B", "E"]].to_csv(path, index=False)
    return path


def test_all_files_are_written_and_agree(table: Path) -> None:
    printed = run(table, "--bootstrap", 3, "--quiet")
    folder = table.parent / "asia-network"
    assert {path.name for path in folder.iterdir()} == FILES
    assert {path.name for path in table.parent.iterdir()} == {"asia.csv", "asia-network"}
    network = BayesianNetwork.from_json((folder / "network.json").read_text(encoding="utf-8"))
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert network.score() == pytest.approx(report["found"])
    assert f"BIC {network.score():,.3f}: {report['verdict']}" in printed
    bif = BayesianNetwork.from_bif((folder / "network.bif").read_text(encoding="utf-8"))
    assert bif.edges == network.edges
    for parent, child in network.edges:
        assert f"{parent} → {child}" in printed


def test_json_and_a_second_run_in_the_same_folder(table: Path) -> None:
    out = table.parent / "deep" / "down"
    options = ("--out", out, "--bootstrap", 0, "--quiet", "--json")
    report = json.loads(run(table, *options))
    assert {Path(path).name for path in report["files"]} == FILES
    assert json.loads(run(table, *options, "--score", "k2", "--paper"))["climbs"] == 0
    assert {path.name for path in out.iterdir()} == FILES


def test_rounds_and_phases_are_told_on_stderr(table: Path) -> None:
    words = ["bn", "learn", table, "--bootstrap", 2, *FAST, "--device", "cpu"]
    told = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False).stderr
    for part in ("pivots", "training the dagnn autoencoder", "epoch 1/1", "round 1/1", "optimum"):
        assert part in told


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", (), "empty file"),
        ("a,a\n1,2\n", (), "more than once"),
        ("a,b\n0.5,x\n0.7,y\n", (), r"numbers in a .*--bins 4"),
        ("a,b\nx,y\nu,v\n", ("--require", "a:b", "--forbid", "a:b"), "both for a:b"),
        ("a,b\nx,y\nu,v\n", ("--require", "a:b", "--require", "b:a"), "cycle"),
        ("a,b\nx,y\nu,v\n", ("--require", "a:c"), "got c"),
        ("a,b\n,y\nu,\n", (), r"missing values .*--missing"),
    ],
)
def test_bad_input_leaves_nothing(
    tmp_path: Path, content: str, options: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        run(path, "--out", tmp_path / "out", *options)
    assert [found.name for found in tmp_path.iterdir()] == ["table.csv"]


def test_a_trained_autoencoder_is_used_or_one_is_trained(table: Path) -> None:
    networks = table.parent / "networks.txt"
    trained = table.parent / "run"
    small = ["--epochs", 1, "--hidden", 8, "--latent", 4, "--device", "cpu", "--quiet"]
    for words in (
        ["data", "bn", "--variables", table, "--graphs", 40, "--out", networks],
        ["train", "bn", "--data", networks, "--out", trained, *small],
    ):
        result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
    options = ["--rounds", 1, "--batch", 2, "--num-pivots", 40, "--bootstrap", 0, "--json"]
    words = ["bn", "learn", table, "--autoencoder", trained, *options, "--quiet"]
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    report = json.loads(result.stdout)
    assert report["settings"]["autoencoder"] == str(trained)
    assert "autoencoder" not in report["seconds"]  # none was trained
    with pytest.raises(ValueError, match=r"--autoencoder, or how to train one .*, got both"):
        run(table, "--autoencoder", trained)


def test_notes_on_the_table_are_told_at_once_and_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("yes,no\n" + "yes,no\nno,yes\nno,no\n" * 9 + "yes,\n", encoding="utf-8")
    options = ("--out", tmp_path / "out", "--bootstrap", 0, *FAST, "--device", "cpu")
    words = ["bn", "learn", *map(str, (path, *options))]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    report = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    for note in (
        "the first line was taken for the columns' names (yes, no)",
        "dropped 1 of 28 rows with missing values (in no); to keep them: --missing",
    ):
        assert shown.stderr.count(note) == shown.stdout.count(note) == 1
        assert sum(told.startswith(note) for told in report["notes"]) == 1


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a table .*got nothing\.csv, which is not there"):
        run("nothing.csv", "--out", tmp_path / "out")
    with pytest.raises(ValueError, match=f"expected a table .*got the folder {tmp_path}; name a"):
        run(tmp_path, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_folder_is_told_before_the_work(table: Path) -> None:
    with pytest.raises(ValueError, match="got the file"):
        run(table, "--out", table)
