"""The file of a corpus of functions: Parquet, one row a function.

Columns: ``project``, ``split``, ``name`` (the function's own name), and three lists of equal length
over the nodes of the syntax tree in depth-first pre-order, node 0 a ``Module`` and node 1 the
function: ``node_type`` (indices into the JSON list ``node_types`` of the file's metadata),
``parent_offset`` (index of the node minus index of its parent; -1 for node 0) and ``attribute``
(null where the node has none). Other columns are not looked at.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dagnn.datasets.code_columns import SPLITS, CodeColumns
from dagnn.datasets.code_vocabulary import sub_tokens

__all__ = ["read_parquet"]

LISTS = ("node_type", "parent_offset", "attribute")
ROWS_AT_ONCE = 20_000


def read_parquet(path: Path) -> tuple[CodeColumns, np.ndarray]:
    """The functions of a corpus file, and their splits as indices into :obj:`SPLITS`. ``[G]``"""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            node_types = _check_schema(path, file.schema_arrow)
            parts = [
                _columns(batch)
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=["split", "name", *LISTS])
            ]
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"expected a corpus of functions in {path}: {error}") from error
    if not parts:
        raise ValueError(f"expected functions in the corpus {path}, got none")
    sizes, types, offsets, encoded, names, splits = zip(*parts, strict=True)
    # Each part has its own dictionary of attributes; from here on they share one.
    encoded = pyarrow.chunked_array(encoded).unify_dictionaries().chunks
    attribute = [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in encoded]
    words = lru_cache(maxsize=None)(sub_tokens)
    try:
        columns = CodeColumns(
            np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
            np.concatenate(types),
            np.concatenate(offsets),
            np.concatenate(attribute),
            node_types,
            encoded[-1].dictionary.to_pylist(),
            [words(name) for part in names for name in part],
        )
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return columns, np.concatenate(splits)


def _check_schema(path: Path, schema: Any) -> list[str]:
    """The names of the node types."""
    from pyarrow import types

    missing = [name for name in ("split", "name", *LISTS) if name not in schema.names]
    if missing:
        raise ValueError(
            f"expected the columns split, name, {', '.join(LISTS)} in {path}, got "
            f"{', '.join(schema.names)}"
        )
    for name in LISTS:
        kind = schema.field(name).type
        is_value = types.is_string if name == "attribute" else types.is_integer
        if not types.is_list(kind) or not is_value(kind.value_type):
            raise ValueError(f"expected lists in the column {name} of {path}, got {kind}")
    try:
        node_types = json.loads((schema.metadata or {})[b"node_types"])
    except (KeyError, ValueError):
        node_types = None
    if not isinstance(node_types, list) or not all(isinstance(name, str) for name in node_types):
        raise ValueError(f"expected a JSON list node_types in the schema metadata of {path}")
    return node_types


def _columns(batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any, list[str], np.ndarray]:
    import pyarrow.compute as pc

    lists = {name: batch.column(name) for name in LISTS}
    sizes = pc.list_value_length(lists["node_type"])
    for name, column in lists.items():
        if column.null_count or not pc.list_value_length(column).equals(sizes):
            raise ValueError(f"expected lists of equal length in {', '.join(LISTS)}, see {name}")
    values = {name: column.flatten() for name, column in lists.items()}
    names = batch.column("name")
    split = pc.index_in(batch.column("split").cast("string"), _strings(SPLITS))
    if values["node_type"].null_count or values["parent_offset"].null_count or names.null_count:
        raise ValueError("expected no missing value but in attribute")
    if split.null_count:
        raise ValueError(f"expected {', '.join(SPLITS)} in the column split")
    return (
        sizes.to_numpy().astype(np.int64),
        values["node_type"].to_numpy(),
        values["parent_offset"].to_numpy(),
        pc.dictionary_encode(values["attribute"]),
        names.to_pylist(),
        split.to_numpy().astype(np.int8),
    )


def _strings(words: tuple[str, ...]) -> Any:
    import pyarrow

    return pyarrow.array(words, pyarrow.string())
