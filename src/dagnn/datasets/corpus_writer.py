"""Writes the file of a corpus of functions; :mod:`dagnn.datasets.code_parquet` reads it.

(They are apart since the processes that parse code should not wait for torch.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagnn.datasets.functions import NODE_TYPES

__all__ = ["CORPUS_FILE", "CorpusWriter"]

CORPUS_FILE = "functions.parquet"  # in the folder that `dagnn data code` makes
ROWS_AT_ONCE = 20_000
KEY = "dagnn.corpus"


class CorpusWriter:
    """Writes a corpus file, some functions at a time; beside the columns above, there are the
    ``path`` and ``line`` of each function.

    Args:
        path: The file.
        key: A word in the metadata that tells one corpus from another.
    """

    def __init__(self, path: Path, key: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        word = pa.dictionary(pa.int32(), pa.string())
        metadata = {"node_types": json.dumps(NODE_TYPES), KEY: key}
        self._schema = pa.schema(
            {
                "project": word,
                "split": word,
                "name": pa.string(),
                "node_type": pa.list_(pa.uint8()),
                "parent_offset": pa.list_(pa.int16()),
                "attribute": pa.list_(pa.string()),
                "path": pa.string(),
                "line": pa.int32(),
            },
            metadata,
        )
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[Any] = []

    def add(self, table: Any, splits: Sequence[str]) -> None:
        """Append functions: a table with all columns but ``split``, and this."""
        import pyarrow as pa

        table = table.append_column("split", pa.array(splits, pa.string()))
        self._waiting.append(table.select(self._schema.names).cast(self._schema))
        if sum(map(len, self._waiting)) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting = []

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    @staticmethod
    def key_of(path: Path) -> str:
        """The key of a corpus file that was written before; empty if it has none."""
        import pyarrow
        import pyarrow.parquet

        try:
            metadata = pyarrow.parquet.read_schema(path).metadata or {}
        except pyarrow.ArrowException as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        return str(metadata.get(KEY.encode(), b""), "utf-8", "replace")
