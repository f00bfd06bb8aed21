"""dagnn train tok and lp, evaluate, name and embed, one after the other."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from dagnn.cli import app
from dagnn.training import read_checkpoint
from tests.tasks.small_code import functions, write_parquet

SMALL = ["--epochs", "1", "--channels", "8", "--batch-size", "16", "--device", "cpu"]


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "small.parquet"
    write_parquet(path)
    return path


@pytest.fixture(scope="module")
def checkpoint(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tok")
    run("train", "tok", "--data", corpus, "--out", out, *SMALL)
    return out / "seed0" / "best.ckpt"


def test_train_tok_prints_the_comparison(corpus: Path, tmp_path: Path) -> None:
    out = run("train", "tok", "--data", corpus, "--out", tmp_path, "--seeds", 2, *SMALL)
    for word in ("dagnn", "Node2Token", "TargetInGraph", "best achievable", "±"):
        assert word in out
    assert (tmp_path / "seed1" / "record.json").exists()
    assert f"Best weights: {tmp_path / 'seed*' / 'best.ckpt'}" in out


def test_spellings_of_the_other_commands(corpus: Path, tmp_path: Path) -> None:
    """Those of `train na` and `train bn`."""
    words = ["--model", "d-vae", "--hidden", "8", "--epochs", "1", "--device", "cpu", "--quiet"]
    command = ["train", "tok", "--data", corpus, "--out", tmp_path / "a", *words, "--json"]
    done = CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
    encoder = json.loads(done.stdout)["config"]["encoder"]
    assert (encoder["model"], encoder["channels"], done.stderr) == ("dvae", 8, "")
    options = ("--out", tmp_path / "b", *SMALL, "--aggregator", "gated-sum", "--json")
    made = json.loads(run("train", "tok", "--data", corpus, *options))
    assert made["config"]["encoder"]["aggregator"] == "gated_sum"


def test_repeating_a_finished_run_says_so(corpus: Path, checkpoint: Path) -> None:
    words = ["train", "tok", "--data", corpus, "--out", checkpoint.parents[1], *SMALL]
    again = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert again.stderr == f"{checkpoint.parent} was finished already (epochs: 1)\n"
    assert f"Best weights: {checkpoint}" in again.stdout


def test_a_finished_run_is_made_longer(corpus: Path, tmp_path: Path) -> None:
    def train(out: str, epochs: int) -> Path:
        words = ("--data", corpus, "--out", tmp_path / out, *SMALL, "--epochs", epochs)
        run("train", "lp", *words)
        return tmp_path / out / "seed0"

    train("longer", 1)
    longer, whole = train("longer", 3), train("whole", 3)
    for file in ("best.ckpt", "last.ckpt"):
        one, other = (read_checkpoint(folder / file)["state_dict"] for folder in (longer, whole))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    records = [json.loads((folder / "record.json").read_text()) for folder in (longer, whole)]
    assert records[0]["config"] == records[1]["config"]


def test_train_lp_with_ablations(corpus: Path, tmp_path: Path) -> None:
    ablations = ["--aggregator", "gated_sum", "--pool", "all", "--bidirectional", "--layers", "3"]
    ablations += ["--dropout", "0.25", "--readout", "gated-sum"]
    text = run("train", "lp", "--data", corpus, "--out", tmp_path, "--json", *SMALL, *ablations)
    result = json.loads(text)
    encoder = result["config"]["encoder"]
    assert (encoder["aggregator"], encoder["pool"], encoder["layers"]) == ("gated_sum", "all", 3)
    assert encoder["bidirectional"]
    assert encoder["readout"] == "gated_sum"
    assert encoder["dropout"] == 0.25
    assert result["config"]["edges"] == "ast"
    assert "MajorityInValid" in result["baselines"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--model gcn --cell gru", "the model gcn, got --cell (of dagnn); leave out"),
        ("--model gin --bidirectional", "gin, got --bidirectional (of dagnn and dvae); leave out"),
        ("--model dvae --no-edge-attributes", "dvae, got --no-edge-attributes (of dagnn); leave"),
    ],
)
def test_an_option_of_another_model_is_refused(options: str, message: str, tmp_path: Path) -> None:
    """Whatever its value, and before the data are read."""
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match=re.escape(message)):
        run("train", "tok", "--data", tmp_path / "empty", *options.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sweep --learning-rate 0.1", "expected either --sweep or --learning-rate, got both"),
        ("--learning-rate nan", "expected learning_rate > 0, got nan"),
        ("--learning-rate inf", "expected learning_rate > 0, got inf"),
        ("--dropout 1", "expected 0 <= dropout < 1, got 1.0"),
    ],
)
def test_bad_numbers(options: str, message: str, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        run("train", "tok", "--data", corpus, "--out", tmp_path, *options.split())
    assert not list(tmp_path.iterdir())


def test_a_sample_of_the_functions_is_told(corpus: Path, tmp_path: Path) -> None:
    def trained(name: str, *options: str) -> tuple[str, int]:
        command = ["train", "lp", "--model", "gcn", "--data", corpus, "--out", tmp_path / name]
        arguments = [*map(str, command), *SMALL, *options]
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        record = json.loads((tmp_path / name / "seed0" / "record.json").read_text())
        return result.stderr, record["config"]["data"]["train"]

    words, number = trained("all", "--train-limit", "0")
    assert "--train-limit" not in words
    told, few = trained("few", "--train-limit", "20")
    assert f"training on 20 of {number:,} functions; see --train-limit" in told
    assert few == 20


def test_another_config_is_refused(corpus: Path, checkpoint: Path) -> None:
    folder = checkpoint.parents[1]
    with pytest.raises(ValueError, match=r"encoder\.model is 'dagnn' there and 'gcn' here"):
        run("train", "tok", "--model", "gcn", "--data", corpus, "--out", folder, *SMALL)


def test_evaluate(corpus: Path, checkpoint: Path) -> None:
    text = run("evaluate", checkpoint, "--data", corpus, "--json", "--device", "cpu")
    values = json.loads(text)
    record = json.loads((checkpoint.parent / "record.json").read_text())
    assert values["f1"] == pytest.approx(record["metrics"]["test_f1"])
    assert values["functions"] == len(functions()) - 60
    assert "f1" in run("evaluate", checkpoint, "--data", corpus, "--split", "valid")
    with pytest.raises(ValueError, match="a split of train, valid, test"):
        run("evaluate", checkpoint, "--data", corpus, "--split", "dev")


def test_evaluate_on_what_the_run_was_trained_on(tmp_path: Path) -> None:
    own = tmp_path / "own.parquet"
    write_parquet(own)
    words = ("train", "lp", "--data", own, "--out", tmp_path, "--json", *SMALL)
    told = run(*words)
    folder = tmp_path / "seed0"
    for path in (tmp_path, folder, folder / "best.ckpt"):
        assert json.loads(run("evaluate", path, "--json", "--device", "cpu"))["data"] == "own"
    for text in (told, *((folder / name).read_text() for name in ("config.json", "record.json"))):
        assert str(tmp_path) not in text  # neither is what the run is, nor goes into results
    own = own.rename(tmp_path / "moved.parquet")
    with pytest.raises(FileNotFoundError, match=r"own\.parquet, which the run was trained on, is"):
        run("evaluate", folder)
    assert "accuracy" in run("evaluate", folder, "--data", own, "--device", "cpu")


def test_a_run_is_named_by_its_folder(corpus: Path, checkpoint: Path, sources: Path) -> None:
    folder = checkpoint.parent
    options = ("--data", corpus, "--json", "--device", "cpu")
    assert run("evaluate", folder, *options) == run("evaluate", checkpoint, *options)
    names = [run("name", sources, "--checkpoint", path) for path in (folder, checkpoint)]
    assert names[0] == names[1]
    run("embed", sources, "--checkpoint", folder, "--out", sources / "x.npy")
    assert run("evaluate", folder.parent, *options) == run("evaluate", folder, *options)
    with pytest.raises(FileNotFoundError, match="train one first"):
        run("evaluate", folder / "nothing", "--data", corpus)


@pytest.mark.parametrize("command", [("name",), ("embed", "--out", "x.npy")])
def test_a_run_in_front_of_the_sources_is_the_model(
    command: tuple[str, ...], checkpoint: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sources)
    wanted = run(*command, "a.py", "--checkpoint", checkpoint)
    for model in (checkpoint, checkpoint.parent):
        assert run(*command, model, "a.py") == wanted
        with pytest.raises(ValueError, match="expected Python files after the model"):
            run(*command, model)
    with pytest.raises(ValueError, match="expected Python files, found none in"):
        run(*command, checkpoint.parent, "--checkpoint", checkpoint)


def test_a_model_of_code_predicts_no_accuracies(checkpoint: Path) -> None:
    architecture = "[[4],[0,1],[2,0,1],[3,1,1,0],[5,0,0,0,1],[1,0,1,1,1,0]]"
    for path in (checkpoint, checkpoint.parent):
        with pytest.raises(ValueError, match=r"train na or dagnn train bn, got .* another"):
            run("predict", "na", architecture, "--checkpoint", path)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "a.py").write_text("def get_name(name):\n    return name\n\ndef xyz(user): del user")
    (folder / "b.py").write_text("class A:\n    def count(self): return len(self)")
    return folder


def test_name(checkpoint: Path, sources: Path) -> None:
    lines = run("name", sources, "--checkpoint", checkpoint).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"{sources / 'a.py'}:1: get_name")
    assert lines[0].count("%") == 3
    report = json.loads(
        run("name", sources, "--checkpoint", checkpoint, "--surprise", "--json", "-n", 2)
    )
    surprises = [row["surprise"] for row in report]
    assert surprises == sorted(surprises, reverse=True)
    assert {row["qualified_name"] for row in report} == {"get_name", "xyz", "A.count"}
    assert len(report[0]["suggestions"]) == 2


def test_name_tells_where_a_file_is_wrong(checkpoint: Path, sources: Path) -> None:
    bad = sources / "bad.py"
    bad.write_text("x = 1\ndef f(:\n")
    result = CliRunner().invoke(app, ["name", str(sources), "--checkpoint", str(checkpoint)])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3
    assert f"{bad}:2:7: syntax error" in result.stderr
    assert f"{bad}:2:7" in run("name", bad, "--checkpoint", checkpoint, status=1)
    command = ["name", str(bad), "--checkpoint", str(checkpoint), "--json"]
    assert json.loads(CliRunner().invoke(app, command).stdout) == []


def test_embed(checkpoint: Path, sources: Path, tmp_path: Path) -> None:
    run("embed", sources, "--checkpoint", checkpoint, "--out", tmp_path / "x.npy")
    vectors = np.load(tmp_path / "x.npy")
    assert vectors.shape == (3, 8)
    run("embed", sources, "--checkpoint", checkpoint, "--out", tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["name"] == ["get_name", "xyz", "A.count"]
    assert np.array(table["vector"], dtype=np.float32) == pytest.approx(vectors)
    (sources / "sub").mkdir()
    (sources / "sub" / "link.py").symlink_to(sources / "b.py")
    files = sources / "b.py", sources / "a.py", sources  # each once, in this order
    run("embed", *files, "--checkpoint", checkpoint, "--out", tmp_path / "y.parquet")
    named = pq.read_table(tmp_path / "y.parquet").to_pydict()["file"]
    assert named == [str(sources / name) for name in ("b.py", "a.py", "a.py")]
    run("embed", *files, "--checkpoint", checkpoint, "--out", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy") == pytest.approx(vectors[[2, 0, 1]], abs=1e-6)
    with pytest.raises(ValueError, match=r"\.parquet or \.npy"):
        run("embed", sources, "--checkpoint", checkpoint, "--out", tmp_path / "x.csv")


def test_no_functions_replace_no_vectors(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "x.npy").write_bytes(b"of before")
    command = (
        "embed",
        tmp_path / "empty.py",
        "--checkpoint",
        checkpoint,
        "--out",
        tmp_path / "x.npy",
    )
    assert "no functions in 1 file" in run(*command, status=1)
    assert (tmp_path / "x.npy").read_bytes() == b"of before"


def test_file_names_may_be_any_bytes(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / os.fsdecode(b"caf\xe9.py")).write_text("def get_name(name):\n    return name\n")
    (folder / os.fsdecode(b"mal\xe9.py")).write_text("def (:\n")
    run("embed", folder, "--checkpoint", checkpoint, "--out", tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["file"] == [f"{folder}/caf\ufffd.py"]
    report = json.loads(run("name", folder, "--checkpoint", checkpoint, "--json"))
    assert report[0]["file"] == f"{folder}/caf\ufffd.py"
