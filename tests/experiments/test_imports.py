"""Runs of the other commands become cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.score_run import score_run
from dagnn.autoencoders.task_data import load_task
from dagnn.experiments.imports import import_runs
from dagnn.experiments.records import read_records
from dagnn.experiments.registry import make_entry
from dagnn.experiments.run_cell import MARK
from dagnn.experiments.views import view_entry, why_in_no_table
from dagnn.tasks.code_encoders import EncoderConfig
from dagnn.tasks.code_protocol import preset
from dagnn.training import run_record, write_json
from tests.autoencoders.interruption import interrupted_after
from tests.autoencoders.na_file import write_architectures


def test_scored_autoencoder(tmp_path: Path) -> None:
    file = tmp_path / "final_structures6.txt"
    write_architectures(file, 200)
    data = load_task("na", file)
    options = {"num_layers": 2, "pool": "all"}
    config = AutoencoderConfig("dagnn", "na", 8, 3, 2, 64, seed=3, options=options)
    run = tmp_path / "runs" / "a"
    fit_autoencoder(config, data.train, run, device="cpu", progress=False)
    with pytest.raises(ValueError, match="counts once it is scored"):
        import_runs(tmp_path / "runs", tmp_path / "cells")
    scored = score_run(run, file, kinds=["vfe"], preset="quick", seeds=2, device="cpu")
    (record,) = import_runs(tmp_path / "runs", tmp_path / "cells")
    (read,) = read_records(tmp_path / "cells")
    assert read == record
    assert read.cell.seed == 3
    assert read.cell.data == "final_structures6"
    assert read.metric("sparse.seeds.rmse") == scored["metrics"]["vfe"]["seeds"]["rmse"]
    assert len(read.content["history"]) == read.metrics["epochs"] == 2
    assert read.content["commit"] == scored["commit"]
    assert read.cell.settings["scoring"]["seeds"] == 2
    assert read.cell.settings["options"] == {"pool": "all"}  # two layers go without saying


def test_scores_that_are_not_of_the_run_as_it_is(tmp_path: Path) -> None:
    """A run that was scored on the way, went on, and was scored with other graphs."""
    file, run = tmp_path / "final_structures6.txt", tmp_path / "runs" / "a"
    write_architectures(file, 100)
    data = load_task("na", file)
    config = AutoencoderConfig("dagnn", "na", 8, 3, epochs=2, batch_size=64)
    source = {"file": file.name, "sha256": data.fingerprint}
    quick: dict[str, Any] = {"kinds": ["vfe"], "preset": "quick", "seeds": 1, "device": "cpu"}

    def train() -> None:
        fit_autoencoder(config, data.train, run, data=source, device="cpu", progress=False)

    def refused(words: str) -> None:
        with pytest.raises(ValueError, match=words):
            import_runs(tmp_path / "runs", tmp_path / "cells")
        assert not (tmp_path / "cells").exists()

    with interrupted_after(1), pytest.raises(KeyboardInterrupt):
        train()
    told: list[str] = []
    scored = score_run(run, file, tell=told.append, **quick)
    assert told[0] == f"{run / 'last.ckpt'} has 1 of 2 epochs; it is scored as it is"
    assert (scored["checkpoint"]["epochs"], scored["checkpoint"]["of_epochs"]) == (1, 2)
    refused(r"come to its end, got .*a with 1 of 2 epochs; train it on.* and score it again")
    train()
    refused(r"score\.json was made from another state of last\.ckpt.*: dagnn score .*last\.ckpt")
    score_run(run, file, **quick)
    (record,) = import_runs(tmp_path / "runs", tmp_path / "cells")
    assert record.metrics["epochs"] == len(record.content["history"]) == 2
    for path in (tmp_path / "cells").iterdir():
        path.unlink()
    (tmp_path / "cells").rmdir()
    score = json.loads((run / "score.json").read_text(encoding="utf-8"))
    score["data"] |= {"file": "other.txt", "sha256": "ab" * 32}
    write_json(run / "score.json", score)
    refused(r"graphs that .*a was trained on, got one with others \(other\.txt\); score it again")


def test_graphs_of_ones_own_are_no_tables(tmp_path: Path) -> None:
    file, run = tmp_path / "mine.txt", tmp_path / "run"
    write_architectures(file, 100)
    data = load_task("na", file)
    config = AutoencoderConfig("dagnn", "na", 8, 3, epochs=1, batch_size=64)
    fit_autoencoder(config, data.train, run, device="cpu", progress=False)
    score_run(run, file, kinds=["vfe"], preset="quick", seeds=1, device="cpu")
    (record,) = import_runs(run, tmp_path / "cells")
    assert (record.cell.data, record.cell.settings["data"]) == ("mine", "mine.txt")
    assert why_in_no_table(record) == "its graphs are those of mine.txt"


def test_code_run_stands_in_its_table(tmp_path: Path) -> None:
    """As `dagnn train lp --model dagnn --preset paper --precision tf32` writes it."""
    run = preset("paper", "lp", "dagnn")
    assert run.encoder.layers is None
    config = {**run.to_dict(), "precision": "tf32"}
    data = {"name": "toy", "fingerprint": "ab" * 32}
    metrics = {"valid_accuracy": 0.98, "test_accuracy": 0.97, "train_seconds": 5.0}
    record = run_record(
        {**config, "data": {**data, "train": 9}}, metrics, seed=0, seconds=1.0, data=data
    )
    write_json(tmp_path / "runs" / "lp" / "seed0" / "record.json", record)
    (imported,) = import_runs(tmp_path / "runs", tmp_path / "cells")
    encoder = EncoderConfig.from_dict(imported.cell.settings["encoder"])
    assert encoder.layers == 2
    place = view_entry("table1", "paper", [imported]).at("DAGNN", "lp")
    assert place is not None
    assert place.records == (imported,)
    assert not why_in_no_table(imported)
    assert place.changes == {"precision": "tf32"}
    planned = make_entry("table1", "paper").only(["DAGNN"], ["lp"]).cells([0])
    assert imported.cell.differences(planned[0]) == {"precision": "32"}
    # The run of a cell may have been tested on a part of the split, of which it does not tell.
    write_json(tmp_path / "runs" / "lp" / "seed0" / MARK, {})
    with pytest.raises(ValueError, match="one of dagnn reproduce has its record already"):
        import_runs(tmp_path / "runs", tmp_path / "cells")


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder with runs of dagnn train"):
        import_runs(tmp_path, tmp_path / "cells")
