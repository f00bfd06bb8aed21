"""The file of a :class:`dagnn.FlatGraphs`: safetensors, so that reading it executes nothing.

Tensors are called ``node_ptr``, ``edge_ptr``, ``edge_index``, ``levels``, and ``kind/name`` for an
attribute (``node/x``, ``graph/y``, …; pointers of ragged ones are ``pointer/name``). The metadata
names the format; words of the caller begin with ``user.``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["read_tensors", "write_tensors"]

FORMAT, VERSION = "dagnn.FlatGraphs", "1"
STRUCTURE = ("node_ptr", "edge_ptr", "edge_index", "levels")
KINDS = ("node", "edge", "graph", "ragged", "pointer")


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    store_num_nodes: bool,
    metadata: Mapping[str, str],
) -> None:
    path = Path(path)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "store_num_nodes": str(store_num_nodes),
        **{f"user.{key}": value for key, value in metadata.items()},
    }
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        save_file({k: t.cpu().contiguous() for k, t in tensors.items()}, unfinished, header)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


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
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(
            f"expected graphs saved by FlatGraphs.save in {path}, got a file that is no "
            f"safetensors file or is damaged: {error}"
        ) from error
