"""Records of cells: one JSON file each, read without executing anything."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagnn.experiments.cells import Cell

__all__ = [
    "CELLS",
    "SPARSE",
    "Record",
    "read_record",
    "read_records",
    "record_path",
    "sparse_process",
]

CELLS = "results/cells"  # where records are unless one says otherwise
SPARSE = "sparse"  # in a metric's path: the sparse Gaussian process that was used
PROCESSES = ("fitc", "vfe", "svgp")  # such as the paper's, nearest first
FIELDS = ("id", "config", "seed", "metrics", "data", "seconds", "hardware", "versions")


@dataclass(frozen=True)
class Record:
    """The record of a cell.

    Args:
        cell: What was run.
        content: What the file holds; see :func:`dagnn.experiments.run_cell.run_cell`.
    """

    cell: Cell
    content: Mapping[str, Any]

    @property
    def metrics(self) -> Mapping[str, Any]:
        metrics: Mapping[str, Any] = self.content["metrics"]
        return metrics

    @property
    def device(self) -> str:
        hardware = self.content["hardware"]
        return str(hardware.get("gpu") or f"{hardware.get('cpus')} CPU cores")

    @property
    def is_on_gpu(self) -> bool:
        return bool(self.content["hardware"].get("gpu"))

    @property
    def is_shared(self) -> bool:
        """Whether others used its device meanwhile, so that its time says little."""
        return bool(self.content.get("shared", False))

    def metric(self, path: str) -> Any:
        """What stands at a path such as ``sparse.seeds.rmse`` or ``test_f1``, or ``None``."""
        value: Any = self.metrics
        for name in path.split("."):
            if name == SPARSE:
                name = sparse_process(value) or name
            if not isinstance(value, Mapping) or name not in value:
                return None
            value = value[name]
        return value


def sparse_process(kinds: Collection[str]) -> str | None:
    """Of several Gaussian processes, the sparse one whose numbers stand in tables."""
    return next((kind for kind in PROCESSES if kind in kinds), None)


def record_path(folder: str | os.PathLike[str], cell: Cell) -> Path:
    """Where the record of a cell lies, or will lie."""
    return Path(folder) / f"{cell.id}.json"


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record.

    Raises:
        ValueError: If the file is none.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        missing = [name for name in FIELDS if name not in content]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing")
        cell = Cell.from_config(content["config"], content["seed"], content["data"]["name"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"expected the record of a cell, got {path}: {error}") from error
    return Record(cell, content)


def read_records(folder: str | os.PathLike[str]) -> list[Record]:
    """All records of a folder, in the order of their names; none if it is not there."""
    return [read_record(path) for path in sorted(Path(folder).glob("*.json"))]
