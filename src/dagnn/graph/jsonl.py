"""Graphs as text: one JSON object a line.

::

    {"num_nodes": 3, "edges": [[0, 1], [1, 2]], "x": [[0.5], [1.0], [1.5]], "y": 3}

``num_nodes`` and ``edges`` (pairs of source and target, counted from 0) are required. ``x``,
``level``, ``reverse_level``, ``edge_type``, ``edge_attr`` and ``y`` may follow, as numbers nested
in lists as the tensor's shape asks (see :mod:`dagnn.graph.convert`), and ``node_names``, a list of
different strings or numbers. Files are read as data; nothing in them is executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from dagnn.graph.convert import FIELDS, assemble, check_node_names, take_apart
from dagnn.graph.files import replacing
from dagnn.graph.levels import CycleError

__all__ = ["read_jsonl", "write_jsonl"]


def read_jsonl(path: str | os.PathLike[str], *, allow_cycles: bool = False) -> Iterator[Data]:
    """The graphs of a file, read one at a time; empty lines are skipped.

    Raises:
        ValueError: If a line is not such an object; the error names the file and the line.
        CycleError: If a graph has a cycle, unless :obj:`allow_cycles`.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                data = _from_record(line, allow_cycles)
            except CycleError as error:
                raise CycleError(f"{path}, line {number}: {error}", error.cycle) from error
            except (TypeError, ValueError, RuntimeError, MemoryError) as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
            yield data


def write_jsonl(graphs: Iterable[Data], path: str | os.PathLike[str]) -> None:
    """Write graphs as :func:`read_jsonl` reads them.

    The file appears (or replaces its predecessor) only when it is complete.

    Example:
        >>> import tempfile, torch
        >>> graph = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "graphs.jsonl")
        ...     write_jsonl([graph, graph], path)
        ...     print(path.read_text(), list(read_jsonl(path)))
        {"num_nodes": 3, "edges": [[0, 1], [1, 2]]}
        {"num_nodes": 3, "edges": [[0, 1], [1, 2]]}
        [Data(edge_index=[2, 2], num_nodes=3), Data(edge_index=[2, 2], num_nodes=3)]
    """
    with replacing(Path(path)) as unfinished, open(unfinished, "x", encoding="utf-8") as file:
        for i, data in enumerate(graphs):
            try:
                file.write(_to_record(data) + "\n")
            except (TypeError, ValueError) as error:
                raise type(error)(f"graph {i}: {error}") from error


def _from_record(line: bytes, allow_cycles: bool) -> Data:
    record = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    required, optional = {"num_nodes", "edges"}, {"node_names", *FIELDS}
    if not required <= record.keys() <= required | optional:
        raise ValueError(
            f"expected the keys num_nodes and edges, and optionally {', '.join(sorted(optional))}, "
            f"got {', '.join(record) or 'none'}"
        )
    num_nodes = record.pop("num_nodes")
    if type(num_nodes) is not int or num_nodes < 0:
        raise ValueError(f"expected num_nodes as an integer >= 0, got {num_nodes!r}")
    edges, names = record.pop("edges"), record.pop("node_names", None)
    data = assemble(num_nodes, edges, record, allow_cycles)
    if names is not None:
        check_node_names(names, num_nodes, (str, int, float))
        data.node_names = names
    return data


def _to_record(data: Data) -> str:
    num_nodes, edge_index, tensors = take_apart(data)
    others = set(data.keys()) - {"edge_index", "num_nodes", "node_names", *FIELDS}
    if others:
        raise ValueError(
            f"expected no attributes but {', '.join(FIELDS)} and node_names, got "
            f"{', '.join(sorted(others))}; delete them first, or join them to x, edge_attr or y"
        )
    for key, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"expected finite numbers in {key}, got NaN or infinity")
    record: dict[str, Any] = {"num_nodes": num_nodes, "edges": edge_index.t().tolist()}
    record |= {key: tensor.tolist() for key, tensor in tensors.items()}
    if "node_names" in data:
        check_node_names(data.node_names, num_nodes, (str, int, float))
        record["node_names"] = data.node_names
    return json.dumps(record, allow_nan=False)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"expected finite numbers, got {name}")
