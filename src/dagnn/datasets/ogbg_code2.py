"""ogbg-code2 of the Open Graph Benchmark, as it lies on disk.

``raw/`` has the graphs one after the other (``edge``, ``node-feat`` with type and attribute,
``node_dfs_order``, ``node_is_attributed``, and how many nodes and edges each has), ``graph-label``
the sub-tokens of the names, ``split/project/`` the splits, ``mapping/`` the words behind the
numbers; all files are ``.csv.gz``. Edges are those of the syntax tree; next-token edges follow
from the rest.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Any

import numba
import numpy as np

from dagnn.datasets.code_columns import SPLITS, CodeColumns

__all__ = ["is_ogbg_code2", "read_ogbg_code2"]

FOLDERS = ("", "ogbg_code2", "code2")  # where OGB and its archive put the data set
MARK = Path("raw") / "num-node-list.csv.gz"


def is_ogbg_code2(folder: Path) -> bool:
    """Whether a folder is, or directly contains, the data set."""
    return _root(folder) is not None


def read_ogbg_code2(folder: Path) -> tuple[CodeColumns, np.ndarray, str]:
    """The functions, their splits as indices into :obj:`SPLITS`, ``[G]``, and a fingerprint."""
    root = _root(folder)
    if root is None:
        raise FileNotFoundError(
            f"expected ogbg-code2 in {folder}, with {MARK}; get it with `dagnn data get code2`"
        )
    try:
        return _read(root)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"expected a complete ogbg-code2 in {root}: {error}") from error


def _root(folder: Path) -> Path | None:
    return next((folder / name for name in FOLDERS if (folder / name / MARK).is_file()), None)


def _read(root: Path) -> tuple[CodeColumns, np.ndarray, str]:
    tables = _Tables(root)
    node_ptr = _pointer(tables.numbers("raw/num-node-list", 1)[:, 0])
    edge_ptr = _pointer(tables.numbers("raw/num-edge-list", 1)[:, 0])
    edge = np.ascontiguousarray(tables.numbers("raw/edge", 2).T)
    order = tables.numbers("raw/node_dfs_order", 1)[:, 0]
    features = tables.numbers("raw/node-feat", 2)
    attributed = tables.numbers("raw/node_is_attributed", 1)[:, 0] == 1
    names = tables.labels("raw/graph-label")
    split = np.full(len(node_ptr) - 1, -1, dtype=np.int8)
    for i, name in enumerate(SPLITS):
        members = tables.numbers(f"split/project/{name}", 1)[:, 0]
        if ((members < 0) | (members >= len(split))).any():
            raise ValueError(f"split/project/{name}.csv.gz names graphs that are not there")
        split[members] = i
    if (split < 0).any():
        raise ValueError(f"graph {split.argmin()} is in no split")

    num_nodes, num_graphs = int(node_ptr[-1]), len(node_ptr) - 1
    lengths = {
        "edge": (edge.shape[1], int(edge_ptr[-1])),
        "num-edge-list": (len(edge_ptr) - 1, num_graphs),
        "graph-label": (len(names), num_graphs),
        "node_dfs_order": (len(order), num_nodes),
        "node-feat": (len(features), num_nodes),
        "node_is_attributed": (len(attributed), num_nodes),
    }
    for name, (found, expected) in lengths.items():
        if found != expected:
            raise ValueError(f"expected {expected} lines in {name}.csv.gz, got {found}")
    row, parent_offset, bad = _preorder(node_ptr, edge_ptr, edge, order)
    if bad >= 0:
        raise ValueError(
            f"graph {bad}: expected a tree, with its nodes numbered by node_dfs_order from 0 on"
        )
    columns = CodeColumns(
        node_ptr,
        features[row, 0],
        parent_offset,
        np.where(attributed, features[:, 1], -1)[row],
        tables.words("mapping/typeidx2type"),
        tables.words("mapping/attridx2attr"),
        names,
    )
    return columns, split, tables.hashed.hexdigest()


def _pointer(counts: np.ndarray) -> np.ndarray:
    if (counts < 0).any():
        raise ValueError(f"expected counts of nodes and edges, got {counts.min()}")
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


class _Tables:
    """Reads ``.csv.gz`` files, and hashes all that it reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hashed = hashlib.sha256()

    def numbers(self, name: str, width: int) -> np.ndarray:
        values: np.ndarray = self._frame(name, width, header=None, dtype=np.int32).to_numpy()
        return values

    def words(self, name: str) -> list[str]:
        """The words of a file of numbered words, with a header."""
        frame = self._frame(name, 2, header=0, dtype=str, keep_default_na=False)
        if frame.iloc[:, 0].tolist() != [str(i) for i in range(len(frame))]:
            raise ValueError(f"expected words numbered from 0 on in {name}.csv.gz")
        return [str(word) for word in frame.iloc[:, 1]]

    def labels(self, name: str) -> list[tuple[str, ...]]:
        """Lines of words, whatever these are: ``nan`` and ``null`` too."""
        lines = gzip.decompress(self._path(name).read_bytes()).decode("utf-8").split("\n")
        return [tuple(line.split()) for line in (lines[:-1] if lines[-1] == "" else lines)]

    def _frame(self, name: str, width: int, **options: Any) -> Any:
        import pandas

        frame = pandas.read_csv(self._path(name), **options)
        if frame.shape[1] < width:
            raise ValueError(f"expected {width} columns in {name}.csv.gz, got {frame.shape[1]}")
        return frame.iloc[:, :width]

    def _path(self, name: str) -> Path:
        path = self.root / f"{name}.csv.gz"
        with path.open("rb") as file:
            self.hashed.update(hashlib.file_digest(file, "sha256").digest())
        return path


@numba.njit(cache=True, nogil=True)
def _preorder(
    node_ptr: np.ndarray, edge_ptr: np.ndarray, edge: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:  # pragma: no cover - compiled
    """Which row each node in pre-order is, and how far before it its parent stands.

    The third value is the first graph that is no tree in pre-order, -1 if there is none.
    """
    row = np.full(node_ptr[-1], -1, dtype=np.int64)
    offset = np.full(node_ptr[-1], -1, dtype=np.int32)
    for g in range(len(node_ptr) - 1):
        first, size = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        for v in range(first, first + size):
            place = order[v]
            if place < 0 or place >= size or row[first + place] >= 0:
                return row, offset, g
            row[first + place] = v
        if edge_ptr[g + 1] - edge_ptr[g] != size - 1:
            return row, offset, g
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            u, v = edge[0, e], edge[1, e]
            if u < 0 or v < 0 or u >= size or v >= size:
                return row, offset, g
            parent, child = order[first + u], order[first + v]
            if parent >= child or offset[first + child] >= 0:
                return row, offset, g
            offset[first + child] = child - parent
    return row, offset, -1
