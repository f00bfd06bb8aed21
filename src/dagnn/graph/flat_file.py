"""The file of a :class:`dagnn.FlatGraphs`: safetensors, so that reading it executes nothing.

Tensors are called ``node_ptr``, ``edge_ptr``, ``edge_index``, ``levels``, and ``kind/name`` for an
attribute (``node/x``, ``graph/y``, …; pointers of ragged ones are ``pointer/name``). The metadata
names the format; words of the caller begin with ``user.``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dagnn.graph.files import replacing
from dagnn.graph.flat_batch import Tables

__all__ = ["read_tensors", "write_tensors"]

FORMAT, VERSION = "dagnn.FlatGraphs", "1"
STRUCTURE = ("node_ptr", "edge_ptr", "edge_index", "levels")
KINDS = ("node", "edge", "graph", "ragged", "pointer")


def write_tensors(
    path: str | os.PathLike[str], tables: Tables, metadata: Mapping[str, str]
) -> None:
    path = Path(path)
    pointers = {kind: torch.from_numpy(pointer) for kind, pointer in tables.pointers.items()}
    tensors = {
        "node_ptr": pointers["node"],
        "edge_ptr": pointers["edge"],
        "edge_index": tables.edges,
        "levels": tables.levels,
    }
    for name, column in tables.columns.items():
        if column.is_ragged:
            tensors[f"pointer/{name}"] = pointers[column.kind]
        tensors[f"{'ragged' if column.is_ragged else column.kind}/{name}"] = column.values
    header = {
        "format": FORMAT,
        "version": VERSION,
        "store_num_nodes": str(tables.store_num_nodes),
        **{f"user.{key}": value for key, value in metadata.items()},
    }
    with replacing(path) as unfinished:
        save_file({k: t.cpu().contiguous() for k, t in tensors.items()}, unfinished, header)


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of :class:`dagnn.FlatGraphs`."""
    tensors, header = _read(Path(path))
    if header.get("format") != FORMAT:
        raise ValueError(
            f"expected graphs saved by FlatGraphs.save in {path}, got a file of the format "
            f"{header.get('format')!r}"
        )
    if header.get("version") != VERSION:
        raise ValueError(
            f"expected version {VERSION} of the format in {path}, got {header.get('version')!r}; "
            "save the graphs again with this version of dagnn"
        )
    kinds: dict[str, dict[str, Tensor]] = {kind: {} for kind in KINDS}
    for key in tensors.keys() - set(STRUCTURE):
        kind, _, name = key.partition("/")
        kinds.setdefault(kind, {})[name] = tensors[key]
    pointers = kinds.pop("pointer")
    missing = set(STRUCTURE) - tensors.keys()
    if missing or kinds.keys() - set(KINDS) or pointers.keys() != kinds["ragged"].keys():
        raise ValueError(
            f"expected graphs saved by FlatGraphs.save in {path}, got a file with the tensors "
            f"{', '.join(sorted(tensors))}"
        )
    return {
        **{name: tensors[name] for name in STRUCTURE},
        **kinds,
        "ragged": {name: (pointers[name], rows) for name, rows in kinds["ragged"].items()},
        "store_num_nodes": header.get("store_num_nodes") == "True",
        "metadata": {
            key.removeprefix("user."): value
            for key, value in header.items()
            if key.startswith("user.")
        },
    }


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    path.stat()  # a missing file is not a damaged one
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(
            f"expected graphs saved by FlatGraphs.save in {path}, got a file that is no "
            f"safetensors file or is damaged: {error}"
        ) from error
