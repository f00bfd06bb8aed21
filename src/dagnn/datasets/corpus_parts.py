"""One part of a corpus: some files, parsed in a process of their own into a file of their own.

A part is written once and then only read, as long as its files are the same. It also remembers
what was left out, and why.
"""

from __future__ import annotations

import hashlib
import json
import platform
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dagnn.datasets.functions import FunctionGraph, SourceError, decode_source, functions_of
from dagnn.datasets.sources import SourceFile
from dagnn.graph.files import replacing

__all__ = [
    "MAX_NODES",
    "MIN_NODES",
    "Skips",
    "cut_parts",
    "parse_file",
    "part_key",
    "read_part",
    "write_part",
]

MIN_NODES, MAX_NODES = 11, 2_000
MAX_BYTES = 4 * 2**20  # of a file; such sizes are data, not code
FORMAT = 1  # to be raised when the same file would give something else
MEAN_FILES = 32  # of a part


@dataclass
class Skips:
    """What was left out: files with the reason and the error, functions with the reason."""

    files: list[dict[str, str]] = field(default_factory=list)
    functions: Counter[str] = field(default_factory=Counter)


def cut_parts(files: Iterable[SourceFile]) -> list[tuple[SourceFile, ...]]:
    """Consecutive files of a project. Where a part ends is decided by the name of its last file
    alone, so that a new file changes the part it is in and no other."""
    parts: list[list[SourceFile]] = []
    ended = True
    for file in files:
        if ended or file.project != parts[-1][-1].project:
            parts.append([])
        parts[-1].append(file)
        ended = zlib.crc32(file.name.encode()) % MEAN_FILES == 0
    return [tuple(part) for part in parts]


def part_key(part: Sequence[SourceFile]) -> str:
    """A hash that changes with the files of a part, and with what parses them."""
    minor = platform.python_version_tuple()[:2]  # of the grammar
    content = json.dumps([FORMAT, minor, MIN_NODES, MAX_NODES, MAX_BYTES, part])
    return hashlib.sha256(content.encode()).hexdigest()


def parse_file(file: SourceFile) -> list[FunctionGraph]:
    """The functions of a file.

    Raises:
        SourceError: If it cannot be parsed; its reason says why.
    """
    if file.size < 0:
        raise SourceError("unreadable", "no regular file, or not there", file.name)
    if file.size > MAX_BYTES:
        raise SourceError("too large", f"{file.size} bytes", file.name)
    try:
        content = Path(file.path).read_bytes()
    except OSError as error:
        raise SourceError("unreadable", str(error), file.name) from error
    return functions_of(decode_source(content, file.name), file.name)


def write_part(part: Sequence[SourceFile], path: Path, fatal: Collection[str] = ()) -> None:
    """Parse files and write their functions.

    Args:
        part: The files.
        path: Where to write; the file appears only when it is complete.
        fatal: Paths of files that are known to end the process that parses them.
    """
    import pyarrow.parquet

    skips = Skips()
    kept: list[tuple[SourceFile, FunctionGraph]] = []
    for file in part:
        try:
            if file.path in fatal:
                raise SourceError("fatal", "ends the parser", file.name)
            functions = parse_file(file)
        except SourceError as error:
            words = str(error.msg)
            if error.lineno is not None:
                words = f"line {error.lineno}, column {error.offset}: {words}"
            skips.files.append({"file": file.name, "reason": error.reason, "error": words})
            continue
        for function in functions:
            if len(function) < MIN_NODES:
                skips.functions[f"under {MIN_NODES} nodes"] += 1
            elif len(function) > MAX_NODES:
                skips.functions[f"over {MAX_NODES} nodes"] += 1
            else:
                kept.append((file, function))
    table = _table(kept).replace_schema_metadata(
        {"skips": json.dumps({"files": skips.files, "functions": skips.functions})}
    )
    with replacing(path) as unfinished:
        pyarrow.parquet.write_table(table, unfinished, compression="zstd", write_page_checksum=True)


def read_part(path: Path) -> tuple[Any, Skips]:
    """The table that :func:`write_part` wrote.

    Raises:
        OSError: If it is not there.
        ValueError: If it is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
        skips = json.loads(table.schema.metadata[b"skips"])
        return table, Skips(skips["files"], Counter(skips["functions"]))
    except (pyarrow.ArrowException, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _table(kept: Sequence[tuple[SourceFile, FunctionGraph]]) -> Any:
    import pyarrow as pa

    functions = [function for _, function in kept]
    starts = pa.array(np.cumsum([0, *map(len, functions)]), pa.int32())

    def lists(values: Any) -> Any:
        return pa.ListArray.from_arrays(starts, values)

    node_type = np.frombuffer(b"".join(f.node_type for f in functions), np.uint8)
    offset = np.frombuffer(b"".join(f.parent_offset.tobytes() for f in functions), np.int32)
    words = list(chain.from_iterable(f.attribute for f in functions))
    return pa.table(
        {
            "project": pa.array([file.project for file, _ in kept], pa.string()),
            "path": pa.array([file.name for file, _ in kept], pa.string()),
            "line": pa.array([f.line for f in functions], pa.int32()),
            "name": pa.array([f.name for f in functions], pa.string()),
            "node_type": lists(pa.array(node_type)),
            "parent_offset": lists(pa.array(offset.astype(np.int16))),
            "attribute": lists(pa.array(words, pa.string())),
            "digest": pa.array([f.digest() for f in functions], pa.binary(16)),
        }
    )
