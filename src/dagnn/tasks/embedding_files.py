"""Vectors of functions as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from dagnn.datasets.functions import FunctionGraph
from dagnn.training.checkpoints import write_atomically

__all__ = ["check_format", "write_embeddings"]

FORMATS = (".parquet", ".npy")


def check_format(path: Path) -> None:
    """That a file's name tells its format."""
    if path.suffix not in FORMATS:
        raise ValueError(f"expected a file name with {' or '.join(FORMATS)}, got {path}")


def write_embeddings(
    path: Path, files: Sequence[str], functions: Sequence[FunctionGraph], vectors: Tensor
) -> None:
    """Write one row per function; the file appears only when it is complete.

    Args:
        path: ``x.npy`` for the vectors alone, float32 ``[F, C]``, or ``x.parquet`` for the columns
            ``file``, ``line``, ``name`` (qualified) and ``vector`` (a list of fixed length).
        files: Of each function.
        functions: The functions.
        vectors: ``[F, C]``
    """
    check_format(path)
    values = vectors.numpy()
    if path.suffix == ".npy":
        write_atomically(path, lambda file: np.save(file, values, allow_pickle=False))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "file": pa.array(files, pa.string()),
            "line": pa.array([f.line for f in functions], pa.int32()),
            "name": pa.array([f.qualified_name for f in functions], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(values.reshape(-1)), values.shape[1]
            ),
        }
    )
    write_atomically(path, lambda file: pq.write_table(table, file))
