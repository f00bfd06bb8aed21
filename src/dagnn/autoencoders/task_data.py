"""What an autoencoder is trained on: the graphs of a task, and the rules of valid ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from dagnn.datasets.architectures import (
    OPERATIONS,
    architecture_rows,
    load_architectures,
    valid_architectures,
)
from dagnn.datasets.bayesian_networks import load_bayesian_networks, valid_bayesian_networks
from dagnn.datasets.rows import Rows, format_row
from dagnn.datasets.small_dags import SmallDags
from dagnn.datasets.training_data import training_data

__all__ = [
    "FILES",
    "VALID",
    "TaskData",
    "default_file",
    "file_digest",
    "load_task",
    "row_texts",
    "training_file",
    "type_names",
]

FILES = {"na": "final_structures6.txt", "bn": "asia_200k.txt"}
VALID: dict[str, Callable[[SmallDags], Tensor]] = {
    "na": valid_architectures,
    "bn": valid_bayesian_networks,
}


class TaskData(NamedTuple):
    """Graphs, split as in the paper."""

    train: SmallDags
    test: SmallDags
    fingerprint: str  # the SHA-256 of the file


def default_file(task: str) -> Path:
    """Where ``dagnn data get`` puts a task's file: in ``$DAGNN_DATA``, or in ``data``."""
    path = _data_folder() / FILES[task]
    if not path.exists():
        how = "dagnn data get na" if task == "na" else "dagnn data bn --out FILE"
        raise ValueError(f"expected the graphs in {path}; give --data FILE, or make it: {how}")
    return path


def training_file(run: Path, config: Mapping[str, Any]) -> Path:
    """The file of graphs that an autoencoder was trained on, known by its fingerprint: where it was
    then, or else in ``$DAGNN_DATA`` or ``data``. Of a run that knows no fingerprint, the task's.

    Args:
        run: The run's folder.
        config: Its config; see :func:`dagnn.autoencoders.fitting.load_autoencoder`.

    Raises:
        ValueError: If there is no such file, or only one with other graphs.
    """
    task, known = config["autoencoder"]["task"], config["data"]
    if "sha256" not in known:
        return default_file(task)
    names = (known.get("file", FILES[task]), FILES[task])
    places = [training_data(run), *(_data_folder() / name for name in names)]
    seen = []
    for path in dict.fromkeys(place for place in places if place is not None):
        is_there = path.is_file()
        if is_there and file_digest(path) == known["sha256"]:
            return path
        seen.append(f"{path} {'holds others' if is_there else 'is not there'}")
    raise ValueError(
        f"expected the graphs that {run} was trained on ({names[0]}, SHA-256 {known['sha256']}), "
        f"but {', '.join(seen)}; give --data FILE"
    )


def _data_folder() -> Path:
    return Path(os.environ.get("DAGNN_DATA", "data"))


def file_digest(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, to tell whether it has changed."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_task(task: str, path: str | os.PathLike[str]) -> TaskData:
    """The graphs of ``"na"`` (:func:`load_architectures`) or ``"bn"``
    (:func:`load_bayesian_networks`) from their file, with the split of the paper."""
    if task not in FILES:
        raise ValueError(f"expected task to be one of {', '.join(FILES)}, got {task!r}")
    graphs = load_architectures(path) if task == "na" else load_bayesian_networks(path)
    return TaskData(*graphs.split(), file_digest(path))


def type_names(task: str, num_types: int) -> list[str]:
    """Short names of node types, for pictures."""
    inner = OPERATIONS if task == "na" else [str(i) for i in range(num_types - 2)]
    return ["in", "out", *inner]


def row_texts(task: str, graphs: SmallDags) -> list[str]:
    """Valid graphs as the rows of their data set, without scores."""
    if task == "na":
        rows = architecture_rows(graphs)
    else:
        inner = slice(1, graphs.max_nodes - 1)
        rows = Rows(graphs.types[:, inner] - 2, graphs.adjacency[:, inner, inner], graphs.score)
    columns = zip(rows.labels.tolist(), rows.bits.tolist(), strict=True)
    return [format_row(labels, bits) for labels, bits in columns]
