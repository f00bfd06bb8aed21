"""``dagnn reproduce``, ``dagnn report`` and ``dagnn doctor``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dagnn.cli import app
from dagnn.experiments import registry
from tests.autoencoders.na_file import write_architectures


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with little data, and a quick preset that is quicker still."""
    (tmp_path / "data").mkdir()
    write_architectures(tmp_path / "data" / "final_structures6.txt", 200)
    monkeypatch.setenv("DAGNN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(registry, "QUICK_GRAPHS", 64)
    monkeypatch.setattr(registry, "QUICK_SCORING", {
        "seeds": 2, "options": {"vfe": {"num_inducing": 8, "steps": 3}},
    })  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLE = ("reproduce", "table5", "--column", "na", "--device", "cpu", "--jobs", 1)


def test_table_then_report(folder: Path) -> None:
    done = run(*TABLE)
    assert done.exit_code == 0
    assert "D-VAE (ours)" in done.stdout
    assert "0.375 ± 0.004" in done.stdout
    assert "Quick preset" in " ".join(done.stderr.split())
    (record,) = (folder / "results" / "cells").glob("*.json")
    before = record.read_bytes()
    again = run(*TABLE, "--json")
    answer = json.loads(again.stdout)
    assert answer["outcomes"] == {"kept": 1}
    assert record.read_bytes() == before
    (entry,) = answer["entries"]
    places = {(place["row"], place["column"]): place for place in entry["places"]}
    assert places["D-VAE (ours)", "na-r"]["paper"] == {"mean": 0.925, "std": 0.001}
    assert places["D-VAE (ours)", "na-rmse"]["ours"]["runs"] == 2
    assert places["D-VAE (ours)", "na-rmse"]["cells"] == [record.stem]

    assert {row for row, _ in places} == {"D-VAE (ours)"}
    assert {column for _, column in places} == {"na-rmse", "na-r"}
    assert "BN" not in done.stdout  # which was not asked for

    page = Path(run("report", "--out", "page.html").stdout.strip())
    assert "<svg" in page.read_text(encoding="utf-8")
    run("report", "--out", "RESULTS.md")
    assert "## Table 5" in Path("RESULTS.md").read_text(encoding="utf-8")


def test_trained_otherwise(folder: Path) -> None:
    options = ("--learning-rate", "0.002", "--batch-size", 32, "--json")
    one, two = ((*TABLE, "--epochs", epochs, *options) for epochs in (1, 2))
    for command in (one, two, one):  # what was asked for is shown, not the latest
        answer = json.loads(run(*command).stdout)
    assert answer["outcomes"] == {"kept": 1}
    place = answer["entries"][0]["places"][0]
    assert place["changes"] == {"batch_size": 32, "epochs": 1, "rate": 0.002}
    assert place["command"].endswith("--seeds 0 --epochs 1 --learning-rate 0.002 --batch-size 32")
    (shown,) = place["cells"]
    records = {path.stem: path for path in (folder / "results" / "cells").glob("*.json")}
    assert len(records) == 2
    record = json.loads(records[shown].read_text(encoding="utf-8"))
    assert (record["config"]["rate"], record["metrics"]["epochs"]) == (0.002, 1)
    run("report", "--out", "RESULTS.md")
    page = Path("RESULTS.md").read_text(encoding="utf-8")
    assert "run with batch_size 32, epochs 2, rate 0.002." in page  # of two alike the latest


def test_dry_run_writes_nothing(folder: Path) -> None:
    shown = run("reproduce", "all", "--dry-run")
    assert shown.exit_code == 0
    assert "autoencoder-na-dagnn" in shown.stdout
    assert "no data" in shown.stdout
    last = " ".join(shown.stdout.split())
    assert "of work on the CPU;" in last
    assert "wait for data; ≈ is" in last
    assert "of work on a GPU;" in " ".join(
        run("reproduce", "table2", "--dry-run", "--device", "cuda").stdout.split()
    )
    assert "dagnn data get asia-bn" in " ".join(shown.stderr.split())
    plan = json.loads(run("reproduce", "table2", "--dry-run", "--json").stdout)
    assert plan["to_run"] == 7
    assert plan["seconds"] > 0
    assert len(plan["missing"]) == 1
    assert not (folder / "results").exists()
    assert not (folder / "runs").exists()


def test_missing_data_is_said(folder: Path) -> None:
    done = run("reproduce", "table5", "--column", "bn", "--jobs", 1)
    assert done.exit_code == 1
    assert "no data" in done.stderr
    assert "dagnn data bn" in " ".join(done.stderr.split())


def test_missing_data_is_said_once(folder: Path) -> None:
    (folder / "data" / "final_structures6.txt").unlink()
    done = run("reproduce", "table2", "--json")
    assert done.exit_code == 1
    (architectures, networks) = done.stderr.splitlines()
    assert "no data for 7 of 14 runs: expected neural architectures" in architectures
    assert "no data for 7 of 14 runs: expected Bayesian networks" in networks
    assert json.loads(done.stdout)["outcomes"] == {"no data": 14}
    assert not (folder / "results").exists()


def test_import(folder: Path) -> None:
    data = folder / "data" / "final_structures6.txt"
    tiny = ("--epochs", 1, "--hidden", 6, "--latent", 3, "--device", "cpu", "--quiet")
    run("train", "na", "--model", "s-vae", "--data", data, "--out", folder / "a", *tiny)
    run("score", folder / "a", "--gp", "vfe", "--seeds", 2, "--device", "cpu")
    done = run("reproduce", "--import-run", folder / "a")
    path = Path(done.stdout.strip())
    assert path.parent == Path("results/cells")
    assert done.stderr == (
        f"{path.stem} is in no table: the nearest place has hidden_channels 501 (here 6), "
        "latent_channels 56 (here 3)\n"
    )
    assert json.loads(path.read_text(encoding="utf-8"))["config"]["hidden_channels"] == 6
    assert json.loads(run("reproduce", "--import-run", "a", "--json").stdout) == [path.stem]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce"], "expected what to reproduce"),
        (["reproduce", "table9"], "expected one of table1"),
        (
            ["reproduce", "table2", "--seeds", "0,x"],
            "expected seeds such as 0,1,2, below 2\\^32, got 'x'",
        ),
        (["reproduce", "table2", "--seeds", str(2**32)], "expected seeds such as 0,1,2, below"),
        (
            ["reproduce", "table2", "--row", "DAGNN", "--row", "Nobody"],
            r"expected a row of table2 \('S-VAE', .*, 'DAGNN'\), got 'Nobody'",
        ),
        (["reproduce", "table2", "--gpus", "0.5"], "expected --ray with --gpus"),
        (["reproduce", "table2", "--device", "cuda"], "torch finds none; use --device cpu"),
        (["reproduce", "table2", "--precision", "tf32"], "runs that take --precision, got none"),
        (["reproduce", "table2", "--learning-rate", "0"], "a learning rate above 0, got 0.0"),
        (["reproduce", "--import-run", "nowhere"], "expected a folder with runs"),
        (["reproduce", "table2", "--import-run", "runs"], "either what to reproduce or --import"),
        (["report"], r"expected a folder of records.*dagnn reproduce table2 \(dagnn doctor"),
        (["report", "--out", "x.pdf"], r"ends with .html or .md"),
    ],
)
def test_bad_arguments(folder: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(*arguments)


@pytest.mark.parametrize(
    "option", [("--epochs", 0), ("--batch-size", -1), ("--precision", "16"), ("--epochs", "few")]
)
def test_bad_values(option: tuple[str, object]) -> None:
    refused = run("reproduce", "table1", *option)
    assert refused.exit_code == 2
    assert option[0] in refused.stderr


def test_folders_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").write_text("mine")
    for option in ("--results", "--runs"):
        expected = rf"expected a folder to write to \({option}\), got the file .*file$"
        with pytest.raises(ValueError, match=expected):
            run("reproduce", "table2", "--column", "na", "--row", "S-VAE", option, "file/x")
    assert (folder / "file").read_text() == "mine"


def test_a_report_of_nothing(folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match="expected records in empty, got none; make some"):
        run("report", "--results", "empty")
    assert not (folder / "report.html").exists()


def test_doctor(folder: Path) -> None:
    shown = run("doctor")
    assert "torch" in shown.stdout
    assert "missing; dagnn data get code2" in shown.stdout
    found = json.loads(run("doctor", "--json").stdout)
    assert found["backends"]["cpu"] == "cpu"
    assert found["data"]["na"]["path"].endswith("final_structures6.txt")
    assert found["data"]["na"]["command"] is None
    assert "dagnn data bn" in found["data"]["bn"]["command"]
    assert found["versions"]["numpy"]


def test_streams_need_a_gpu_and_no_other_way() -> None:
    with pytest.raises(ValueError, match="expected a GPU for --streams, got none; use --jobs"):
        run("reproduce", "table2", "--streams", "2", "--device", "cpu")
    with pytest.raises(ValueError, match="expected one of --streams, --jobs and --ray"):
        run("reproduce", "table2", "--streams", "2", "--jobs", "2")
