"""Run a cell: what each kind does, and the record of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.score_run import distinct_graphs, latent_points, score_points
from dagnn.autoencoders.task_data import TaskData, file_digest, load_task
from dagnn.autoencoders.vae import DagVAE
from dagnn.bayesnet.table import read_table
from dagnn.datasets.code_dataset import CodeDataset, load_code_dataset
from dagnn.datasets.small_dags import SmallDags
from dagnn.experiments.cells import Cell
from dagnn.experiments.data_files import find_data
from dagnn.search.learn_network import learn_network
from dagnn.search.learning_settings import LearningSettings
from dagnn.tasks.code_encoders import EncoderConfig
from dagnn.tasks.code_protocol import CodeRun
from dagnn.tasks.code_training import choose_device, train_code
from dagnn.tasks.simple_baselines import simple_baselines
from dagnn.training import median_time, origins_of, run_record, write_json

__all__ = ["MARK", "Workplace", "bind", "read_history", "run_cell"]

MARK = "cell.json"  # in the folder of a run that is a cell's
LONG_PATH = 30  # paths above are counted apart in the paper's Figure 6


@dataclass(frozen=True)
class Workplace:
    """Where and on what cells are run.

    Args:
        data: The folder of the data sets.
        runs: Where unfinished and finished runs keep their checkpoints.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Whether to show the progress of training.
        shared: Whether others use the device meanwhile, so that times say little: records say so.
    """

    data: Path
    runs: Path
    device: str = "auto"
    progress: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Result:
    """What a kind of cell returns for its record."""

    metrics: dict[str, Any]
    fingerprint: str
    history: list[dict[str, Any]] | None = None
    network: str | None = None  # JSON of a Bayesian network
    origins: list[dict[str, Any]] = field(default_factory=list)  # of its training


def bind(cell: Cell, data: str | os.PathLike[str]) -> Cell:
    """The cell with the name of the data that it will find in a folder.

    Raises:
        FileNotFoundError: If it is not there; the error says how to get it.
    """
    return replace(cell, data=find_data(cell.data_kind, data).stem)


def run_cell(cell: Cell, place: Workplace) -> dict[str, Any]:
    """Run a cell to its end, going on where an earlier run of it was killed.

    Returns:
        The record: that of :func:`dagnn.training.run_record`, with the cell's ``id`` and, where
        there are any, ``history`` (a row per epoch) and ``network``.
    """
    path = find_data(cell.data_kind, place.data)
    if cell.data != path.stem:
        raise ValueError(f"expected the data {cell.data!r} of {cell.id}, found {path}")
    folder = place.runs / cell.id
    goes_on, earlier = folder.exists(), _epochs(folder)
    start, cpu_start = time.perf_counter(), time.process_time()
    result = RUN[cell.kind](cell, path, place)
    record = run_record(
        cell.config,
        result.metrics,
        seed=cell.seed,
        seconds=sum(row["seconds"] for row in earlier) + time.perf_counter() - start,
        data={"name": cell.data, "sha256": result.fingerprint},
        origins=result.origins,
    )
    record = {"id": cell.id, **record}
    if place.shared or any(row.get("shared") for row in earlier):
        record["shared"] = True
    elif not goes_on:  # that of killed processes is not known
        # On a busy machine the time of the clock says little.
        record["cpu_seconds"] = round(time.process_time() - cpu_start, 3)
    if result.history is not None:
        record["history"] = result.history
    if result.network is not None:
        record["network"] = result.network
    return record


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl``, as far as a report draws them; without the time of
    epochs that shared their device."""
    kept = ("epoch", "loss", "valid_f1", "valid_accuracy", "train_seconds")
    return [
        {
            name: _short(row[name])
            for name in kept
            if name in row and not (name == "train_seconds" and row.get("shared"))
        }
        for row in _epochs(folder)
    ]


def _epochs(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _run_code(cell: Cell, path: Path, place: Workplace) -> Result:
    settings = {k: v for k, v in cell.settings.items() if k not in ("purpose", "test_limit")}
    settings["encoder"] = EncoderConfig.from_dict(settings["encoder"])
    run = CodeRun(**settings, seed=cell.seed)
    data = _code(path, run.edges, run.train_share)
    if (limit := cell.settings.get("test_limit")) is not None:
        data = _with_fewer_tests(data, limit)
    folder = _folder(cell, place)
    record = train_code(
        run,
        data,
        folder,
        device=place.device,
        progress=place.progress,
        shared=place.shared,
    )
    return Result(
        record["metrics"], data.fingerprint, read_history(folder), origins=origins_of(record)
    )


def _folder(cell: Cell, place: Workplace) -> Path:
    """Where the run is kept, with a word on whose it is: not all that a cell is stands in the
    config of its run."""
    folder = place.runs / cell.id
    write_json(folder / MARK, cell.config)
    return folder


def _run_baseline(cell: Cell, path: Path, place: Workplace) -> Result:
    data = _code(path, "ast", 1.0)
    metrics = simple_baselines(cell.task, data.valid, data.test, data.vocabulary)
    return Result(metrics, data.fingerprint)


def _run_lengths(cell: Cell, path: Path, place: Workplace) -> Result:
    data = _code(path, "ast", cell.settings["share"])
    splits = (data.train, data.valid, data.test)
    lengths = np.concatenate([split.column("longest_path").cpu().numpy() for split in splits])
    metrics = {
        "mean": float(lengths.mean()),
        "graphs": len(lengths),
        "above_30": int((lengths > LONG_PATH).sum()),
        "counts": np.bincount(lengths, minlength=LONG_PATH + 1)[: LONG_PATH + 1].tolist(),
    }
    return Result(metrics, data.fingerprint)


def _run_autoencoder(cell: Cell, path: Path, place: Workplace) -> Result:
    own = ("purpose", "scoring", "graphs")
    config = AutoencoderConfig(
        **{name: value for name, value in cell.settings.items() if name not in own}, seed=cell.seed
    )
    data = _graphs(cell.task, path)
    train = data.train[: cell.settings.get("graphs") or len(data.train)]
    folder = _folder(cell, place)
    model, run = fit_autoencoder(
        config,
        train,
        folder,
        data={"file": path.name, "sha256": data.fingerprint},
        device=place.device,
        progress=place.progress,
        shared=place.shared,
    )
    history = read_history(folder)
    metrics: dict[str, Any] = {
        "loss": run.history[-1]["loss"],
        "epochs": len(run.history),
        **median_time(history),
    }
    scoring = cell.settings.get("scoring")
    if scoring is not None:
        test = data.test[: cell.settings.get("graphs") or len(data.test)]
        where = model.to(choose_device(place.device)).latent_mean.device
        stream = _behind_others() if place.shared and where.type == "cuda" else None
        with torch.cuda.stream(stream):
            metrics |= _score(model, cell.task, train, test, **scoring)
    return Result(metrics, data.fingerprint, history, origins=run.origins)


def _behind_others() -> torch.cuda.Stream:
    """A stream for large products, which lets the small kernels of those who train beside it go
    first."""
    stream = torch.cuda.Stream()  # theirs have a higher priority
    stream.wait_stream(torch.cuda.current_stream())
    return stream


def _score(
    model: DagVAE,
    task: str,
    train: SmallDags,
    test: SmallDags,
    seeds: int,
    options: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    device = model.latent_mean.device
    model.eval()
    train, test = train.to(device), test.to(device)
    if task == "bn":
        train = train.index_select(distinct_graphs(train))
    known, asked = ((latent_points(model, g), g.score) for g in (train, test))
    return score_points(known, asked, options, seeds)


def _run_search(cell: Cell, path: Path, place: Workplace) -> Result:
    table = read_table(path)
    network = learn_network(
        table,
        score=cell.settings["score"],
        rounds=cell.settings["rounds"],
        batch=cell.settings["batch"],
        seed=cell.seed,
        bootstrap=0,
        settings=LearningSettings(model=cell.settings["model"], **cell.settings["search"]),
        device=place.device,
        progress=place.progress,
        folder=place.runs / cell.id,
    )
    report = network.report
    assert report is not None, "learn_network tells how it went"
    metrics = {
        "score": report.found,
        "best_pivot": report.best_pivot,
        "hill_climbing": report.hill_climbing,
        "exact": report.exact,
        "scored": report.scored,
        "rounds": [asdict(each) for each in report.rounds],
    }
    return Result(metrics, file_digest(path), network=network.to_json())


RUN: dict[str, Callable[[Cell, Path, Workplace], Result]] = {
    "code": _run_code,
    "baseline": _run_baseline,
    "lengths": _run_lengths,
    "autoencoder": _run_autoencoder,
    "search": _run_search,
}


# Cells of a table follow each other on the same data.
@lru_cache(maxsize=1)
def _code(path: Path, edges: str, share: float) -> CodeDataset:
    return load_code_dataset(path, edges=edges, train_share=share)


def _graphs(task: str, path: Path) -> TaskData:
    with _READING:  # threads that begin together would each read it
        return _read_graphs(task, path)


_READING = threading.Lock()


@lru_cache(maxsize=2)  # one of each task
def _read_graphs(task: str, path: Path) -> TaskData:
    return load_task(task, path)


def _with_fewer_tests(data: CodeDataset, limit: int) -> CodeDataset:
    """A random sample of the test split that is the same for all models and seeds."""
    if len(data.test) <= limit:
        return data
    sample = np.random.default_rng(0).permutation(len(data.test))[:limit]
    return replace(data, test=data.test.select(np.sort(sample)))
