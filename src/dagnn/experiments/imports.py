"""Runs made with ``dagnn train`` and ``dagnn score``, as records of cells."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagnn.autoencoders.score_run import check_state
from dagnn.autoencoders.task_data import FILES
from dagnn.experiments.cells import Cell
from dagnn.experiments.records import Record, record_path
from dagnn.experiments.registry import changed_options, code_settings
from dagnn.experiments.run_cell import MARK, read_history
from dagnn.tasks.code_encoders import EncoderConfig
from dagnn.tasks.code_protocol import CodeRun
from dagnn.training import (
    find_checkpoint,
    median_time,
    read_checkpoint,
    standing,
    write_json,
)

__all__ = ["import_runs"]

ENVIRONMENT = ("seconds", "finished", "commit", "versions", "hardware")


def import_runs(runs: str | os.PathLike[str], folder: str | os.PathLike[str]) -> list[Record]:
    """Write records of all finished runs below a folder: of TOK and LP as they were trained, of
    autoencoders once they are scored.

    A run stands in a table if its model is the table's; where its protocol differs (epochs,
    learning rate, precision, scoring, …), the report says so. See also
    :func:`dagnn.experiments.views.why_in_no_table`.

    Args:
        runs: A run's folder, or one with several below it.
        folder: Where records are kept. One that is there is written anew.

    Raises:
        ValueError: If there is no such run, or one was scored before it had come to its end, in
            another state than it is in now, or with other graphs than it was trained on. Then
            nothing is written.
    """
    runs = Path(runs)
    records = [_content(path) for path in _finished(runs)]
    found = [record for record in records if record is not None]
    if not found:
        raise ValueError(
            f"expected a folder with runs of dagnn train tok, lp, na or bn, got {runs}; a run of "
            "na or bn counts once it is scored (dagnn score RUN), one of dagnn reproduce has its "
            "record already"
        )
    for record in found:
        write_json(record_path(folder, record.cell), record.content)
    return found


def _finished(runs: Path) -> Iterator[Path]:
    for name in ("record.json", "score.json"):
        # What `train --sweep` tried is under other learning rates, each a cell of its own. Cells'
        # own runs have their records, which say more.
        found = sorted(runs.rglob(name))
        yield from (path for path in found if not (path.parent / MARK).exists())


def _content(path: Path) -> Record | None:
    run = json.loads(path.read_text(encoding="utf-8"))
    config = run.get("config", {})
    if path.name == "score.json":
        cell, metrics = _autoencoder(path.parent, run)
        sha256 = run["data"]["sha256"]
    elif config.get("task") in ("tok", "lp"):
        cell, metrics = _code(run), run["metrics"]
        sha256 = run["data"]["fingerprint"]
    else:
        return None  # of an autoencoder, which counts when it is scored; or of a predictor
    content = {
        "id": cell.id,
        "config": cell.config,
        "seed": cell.seed,
        "metrics": metrics,
        "data": {"name": cell.data, "sha256": sha256},
        **{name: run[name] for name in ENVIRONMENT},
        **({"earlier": run["earlier"]} if "earlier" in run else {}),
        **({"shared": True} if run.get("shared") else {}),
        # A run that was made longer, but not to its new end, has more.
        "history": read_history(path.parent)[: metrics.get("epochs")],
    }
    return Record(cell, content)


def _code(run: dict[str, Any]) -> Cell:
    config = {name: value for name, value in run["config"].items() if name != "data"}
    config["encoder"] = EncoderConfig.from_dict(config["encoder"])
    return Cell("code", code_settings(CodeRun(**config)), run["seed"], run["data"]["name"])


def _autoencoder(folder: Path, score: dict[str, Any]) -> tuple[Cell, dict[str, Any]]:
    config, epochs = _scored(folder, score)
    settings = {k: v for k, v in config["autoencoder"].items() if k != "seed"}
    settings["options"] = changed_options(settings["options"], settings["model"], settings["task"])
    measured = score["metrics"]
    settings["scoring"] = {
        "seeds": score["config"]["seeds"],
        "options": {kind: measured[kind]["options"] for kind in measured},
    }
    file = score["data"]["file"]
    if file != FILES[settings["task"]]:
        settings["data"] = file  # no table's
    history = read_history(folder)[:epochs]
    metrics = {
        "loss": history[-1]["loss"],
        "epochs": epochs,
        **median_time(history),
        **measured,
    }
    return Cell("autoencoder", settings, config["autoencoder"]["seed"], Path(file).stem), metrics


def _scored(folder: Path, score: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The config and the epochs of a run, if it has come to its end, and the score is of that."""
    last = find_checkpoint(folder / "last.ckpt")
    checkpoint = read_checkpoint(last)
    epochs, of_epochs, finished = standing(checkpoint)
    if not finished:
        raise ValueError(
            f"expected a run that has come to its end, got {folder} with {epochs} of {of_epochs} "
            "epochs; train it on, with the command that began it, and score it again. Nothing was "
            "taken over"
        )
    check_state(folder / "score.json", score.get("checkpoint", {}).get("sha256"), last)
    config = checkpoint["config"]
    known, used = config["data"].get("sha256"), score["data"]
    if known not in (None, used["sha256"]):
        raise ValueError(
            f"expected a score with the graphs that {folder} was trained on, got one with others "
            f"({used['file']}); score it again without --data: dagnn score {folder}"
        )
    return config, epochs
