"""Rows of text that hold small DAGs: ``[[label, bit, …], …], score``, one graph a line.

Row ``k`` of a graph has a label and ``k`` bits, one for each earlier row; what labels and bits
mean is the data set's affair. The rows are JSON but for the outer brackets, so that they are read
by a parser which executes nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from dagnn.graph.files import replacing

__all__ = [
    "Rows",
    "format_row",
    "open_graphs",
    "parse_row",
    "parse_rows",
    "read_rows",
    "write_rows",
]


class Rows(NamedTuple):
    """Parsed rows, all graphs of one length ``R``."""

    labels: Tensor  # [G, R] int64
    bits: Tensor  # [G, R, R] bool, bits[g, k, j] for j < k
    score: Tensor  # [G] float64


def parse_row(text: str, num_rows: int, num_labels: int) -> tuple[list[list[int]], float]:
    """One line; what is wrong with it is a ValueError that says so."""
    rows, score = _split(text)
    if type(score) not in (int, float):
        raise ValueError(f"expected a number as the score, got {score!r}")
    try:
        number = float(score)
    except OverflowError:  # an integer beyond the largest float
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a finite score, got {number}")
    return check_rows(rows, num_rows, num_labels), number


def check_rows(rows: Any, num_rows: int, num_labels: int) -> list[list[int]]:
    """Rows as nested lists, if they are such; a ValueError that says what is wrong otherwise."""
    if type(rows) is not list or len(rows) != num_rows:
        found = f"{len(rows)}" if type(rows) is list else repr(rows)
        raise ValueError(f"expected a list of {num_rows} rows, got {found}")
    for k, row in enumerate(rows):
        if type(row) is not list or not row or {*map(type, row)} != {int}:
            raise ValueError(f"expected row {k} as a list of integers, got {row!r}")
        if len(row) != k + 1:
            hint = "; a bit may point to an earlier row only" if len(row) > k + 1 else ""
            raise ValueError(
                f"expected a label and {k} bits in row {k}, got {len(row)} numbers: {row}{hint}"
            )
        if not 0 <= row[0] < num_labels:
            raise ValueError(
                f"expected labels from 0 to {num_labels - 1}, got {row[0]} in row {k}: {row}"
            )
        if not {*row[1:]} <= {0, 1}:
            raise ValueError(f"expected bits 0 and 1 after the label, got row {k}: {row}")
    return rows


def parse_rows(lines: Iterable[str], num_rows: int, num_labels: int, *, name: str = "rows") -> Rows:
    """Parse lines, all of :obj:`num_rows` rows with labels below :obj:`num_labels`.

    Empty lines are skipped. A malformed line is a ValueError with its number (from 1).
    """
    flat: list[list[int]] = []
    scores: list[float] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows, score = parse_row(line, num_rows, num_labels)
        except ValueError as error:
            raise ValueError(f"{name}, line {number}: {error}") from None
        flat.append([value for row in rows for value in row])
        scores.append(score)
    if not flat:
        raise ValueError(f"{name}: expected a graph a line, got no lines")
    table = torch.from_numpy(np.array(flat, dtype=np.int64))  # [G, R (R + 1) / 2]
    row, place = torch.tril_indices(num_rows, num_rows)
    square = torch.zeros(len(flat), num_rows, num_rows, dtype=torch.long)
    square[:, row, place] = table  # column 0 the labels, column j + 1 bit j
    bits = torch.zeros(len(flat), num_rows, num_rows, dtype=torch.bool)
    bits[:, :, :-1] = square[:, :, 1:] == 1
    return Rows(square[:, :, 0].contiguous(), bits, torch.tensor(scores, dtype=torch.float64))


@contextmanager
def open_graphs(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a file of graphs to read, or say that there is none."""
    if not os.path.exists(path) or os.path.isdir(path):
        kind = "a folder" if os.path.exists(path) else "not there"
        raise FileNotFoundError(
            f"expected a file with a graph a line, got {os.fspath(path)}, which is {kind}; check "
            "the name, and the folder that it is looked up from"
        )
    try:
        with open(path, encoding="utf-8") as file:
            yield file
    except UnicodeDecodeError:
        raise ValueError(
            f"expected a text file with a graph a line, got {os.fspath(path)}, which is not text"
        ) from None


def read_rows(path: str | os.PathLike[str], num_rows: int, num_labels: int) -> Rows:
    """:func:`parse_rows` of a file."""
    with open_graphs(path) as file:
        return parse_rows(file, num_rows, num_labels, name=str(path))


def format_row(labels: Sequence[int], bits: Sequence[Sequence[bool]]) -> str:
    """The text of one graph, without its score."""
    return str([[int(labels[k]), *map(int, bits[k][:k])] for k in range(len(labels))])


def write_rows(path: str | os.PathLike[str], rows: Rows) -> None:
    """Write a file that :func:`read_rows` reads; nothing is left behind when interrupted."""
    num_rows = rows.labels.size(1)
    square = torch.cat([rows.labels.unsqueeze(-1), rows.bits[:, :, :-1].long()], dim=-1)
    row, place = torch.tril_indices(num_rows, num_rows)
    numbers = square[:, row, place].tolist()  # [G, R (R + 1) / 2]
    # One template for all lines: many times as fast as a list of lists for each.
    line = str([["%d"] * (k + 1) for k in range(num_rows)]).replace("'", "") + ", %r\n"
    with replacing(Path(path)) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        for values, score in zip(numbers, rows.score.tolist(), strict=True):
            file.write(line % (*values, score))


def _split(text: str) -> tuple[Any, Any]:
    try:
        parts = json.loads(f"[{text}]")
    except (ValueError, RecursionError):
        parts = None
    if parts is None or len(parts) != 2:
        raise ValueError(f"expected [[label, bit, …], …], score; got {_short(text)}")
    return parts[0], parts[1]


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 80 else text[:77] + "...")
