"""Tables of discrete values, as codes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from dagnn.bayesnet.text_tables import doubts_of_names, other_format, ragged_line
from dagnn.bayesnet.variables import (
    MAX_WHOLE_NUMBERS,
    Variable,
    has_infinity,
    is_measurement,
    is_time,
)

__all__ = ["Missing", "Table", "encode_frame", "number_rows", "read_table"]

Missing = Literal["drop", "category"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of discrete values.

    Args:
        variables: What the columns mean; their names are all different.
        codes: The values, as indices of the columns' levels. int32 ``[N, n]``
        notes: What a user should know about the reading, such as the number of dropped rows.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"rain": ["yes", "no", None], "grass": ["wet", "dry", "wet"]})
        >>> table = Table.from_frame(frame)
        >>> table
        Table(2 rows, 2 columns)
        >>> table.levels
        (('no', 'yes'), ('dry', 'wet'))
        >>> table.notes
        ("dropped 1 of 3 rows with missing values (in rain); to keep them: ...",)
    """

    variables: tuple[Variable, ...]
    codes: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        return tuple(variable.levels for variable in self.variables)

    @property
    def num_rows(self) -> int:
        return len(self.codes)

    @property
    def num_columns(self) -> int:
        return len(self.variables)

    @property
    def cardinalities(self) -> np.ndarray:
        """The number of levels of each column. int64 ``[n]``"""
        return np.array([len(level) for level in self.levels], dtype=np.int64)

    def __repr__(self) -> str:
        return f"Table({self.num_rows:,} rows, {self.num_columns} columns)"

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, *, missing: Missing = "drop", bins: int | None = None
    ) -> Table:
        """The table of a data frame.

        Texts, booleans, categories and few different whole numbers are taken as they are. The
        levels are those that occur, sorted (categories: in their own order).

        Args:
            frame: One column for each variable.
            missing: Whether rows with missing values are dropped, or missing values are a level.
            bins: Numbers that are not categories are cut at their quantiles into so many levels.

        Raises:
            ValueError: If there are no rows or columns, names are not unique, or columns hold
                numbers and no :obj:`bins` are given.
        """
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"expected a pandas DataFrame, got {type(frame).__name__}")
        if missing not in ("drop", "category"):
            raise ValueError(f"expected missing as 'drop' or 'category', got {missing!r}")
        if bins is not None and bins < 2:
            raise ValueError(f"expected at least 2 bins, got {bins}")
        names = _column_names(frame)
        if not len(frame):
            raise ValueError("expected a table with rows, got none")
        absent = np.stack([frame.iloc[:, i].isna().to_numpy() for i in range(len(names))], axis=1)
        notes = []
        if missing == "drop" and absent.any():
            incomplete = absent.any(axis=1)
            where = ", ".join(name for i, name in enumerate(names) if absent[:, i].any())
            count = f"{incomplete.sum():,} of {len(frame):,} rows with missing values (in {where})"
            if incomplete.all():
                raise ValueError(
                    f"expected rows without missing values, got {count}; take missing values "
                    "as a category (--missing, in Python missing='category'), or leave such "
                    "columns out"
                )
            notes.append(f"dropped {count}; to keep them: --missing, in Python missing='category'")
            frame = frame[~incomplete]
        _refuse_measurements(frame, names, bins)
        variables = tuple(
            Variable.of_column(name, frame.iloc[:, i], bins=bins) for i, name in enumerate(names)
        )
        constant = [variable.name for variable in variables if len(variable.levels) == 1]
        if len(frame) == 1:
            notes.append("one row, in which all is constant: nothing can be learnt from it")
        elif constant:
            notes.append(f"constant, so never part of an edge worth having: {', '.join(constant)}")
        return cls(variables, encode_frame(variables, frame), tuple(notes))

    def resample(self, generator: np.random.Generator) -> Table:
        """As many rows, drawn with replacement. The levels stay, whether they occur or not."""
        rows = generator.integers(self.num_rows, size=self.num_rows)
        return Table(self.variables, self.codes[rows])

    def to_frame(self) -> pd.DataFrame:
        """The values as texts."""
        return pd.DataFrame(
            {
                name: np.array(level, dtype=object)[code]
                for name, level, code in zip(self.names, self.levels, self.codes.T, strict=True)
            }
        )


def read_table(
    path: str | os.PathLike[str], *, missing: Missing = "drop", bins: int | None = None
) -> Table:
    """The table of a file: Parquet (``.parquet``), tabs (``.tsv``), or commas.

    The first line of a text file has the columns' names; where these look like values, the table's
    notes say so. Empty fields, NA, NaN, N/A, null and None are missing values. See
    :meth:`Table.from_frame` for the arguments.
    """
    from pyarrow import ArrowException, csv, parquet, types

    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"expected a table (.csv, .tsv or .parquet), got the folder {path}; name a file in it"
        )
    if not path.exists():
        raise FileNotFoundError(
            f"expected a table (.csv, .tsv or .parquet), got {path}, which is not there; check the "
            "name, and the folder that it is looked up from"
        )
    if not path.stat().st_size:
        raise ValueError(f"expected a table in {path}, got an empty file")
    is_text = path.suffix.lower() not in (".parquet", ".pq")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        if not is_text:
            arrow = parquet.read_table(path)
        else:
            arrow = csv.read_csv(
                path,
                parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"],
                    strings_can_be_null=True,
                ),
            )
            if any(types.is_binary(kind) for kind in arrow.schema.types):
                raise ValueError(f"expected text in UTF-8 in {path}, got other bytes")
    except (ArrowException, UnicodeDecodeError) as error:
        reason = str(error)
        if is_text:
            found = ragged_line(path, delimiter), other_format(path, delimiter)
            reason = "; ".join(filter(None, found)) or reason
        raise ValueError(f"expected a table in {path}: {reason}") from error
    if arrow.num_columns == 1 and any(mark in arrow.column_names[0] for mark in ";\t|"):
        raise ValueError(
            f"expected columns separated by commas in {path} (or by tabs, in a file called .tsv), "
            f"got one column named {arrow.column_names[0]!r}"
        )
    doubts = doubts_of_names(arrow) if is_text else ()
    try:
        table = Table.from_frame(arrow.to_pandas(), missing=missing, bins=bins)
    except ValueError as error:
        raise ValueError("; ".join((f"{path}: {error}", *doubts))) from error
    return replace(table, notes=(*doubts, *table.notes))


def encode_frame(variables: Sequence[Variable], frame: pd.DataFrame) -> np.ndarray:
    """The rows of a data frame in the codes of variables. int32 ``[N, n]``

    Raises:
        ValueError: If a column is not there, or a value is not among its levels.
    """
    names = _column_names(frame)
    codes = np.empty((len(frame), len(variables)), dtype=np.int32)
    for i, variable in enumerate(variables):
        if variable.name not in names:
            raise ValueError(f"expected a column {variable.name!r}, got {', '.join(names)}")
        codes[:, i] = variable.encode(frame.iloc[:, names.index(variable.name)])
    return codes


def number_rows(codes: np.ndarray, cardinalities: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Number the different rows, in lexicographic order.

    Returns:
        The number of each row ``[N]``, and for each number the first row that has it ``[M]``.
        Neither time nor memory depends on the cardinalities.
    """
    number = np.zeros(len(codes), dtype=np.int64)
    first, bound = np.zeros(min(1, len(codes)), dtype=np.int64), 1
    for column, cardinality in zip(codes.T, cardinalities, strict=True):
        if bound * int(cardinality) >= 2**62:
            _, first, number = np.unique(number, return_index=True, return_inverse=True)
            bound = len(first)
        number = number * int(cardinality) + column
        bound *= int(cardinality)
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return number, first


def _column_names(frame: pd.DataFrame) -> tuple[str, ...]:
    names = tuple(str(name).strip() for name in frame.columns)
    if not names:
        raise ValueError("expected a table with columns, got none")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"expected different column names, got {', '.join(twice)} more than once")
    if "" in names:
        raise ValueError(f"expected a name for every column, got none for {names.index('') + 1}")
    return names


def _refuse_measurements(frame: pd.DataFrame, names: Sequence[str], bins: int | None) -> None:
    columns = {name: frame.iloc[:, i] for i, name in enumerate(names)}
    times = [name for name, column in columns.items() if is_time(column)]
    if times:
        raise ValueError(
            f"expected discrete values, got dates or times in {', '.join(times)}; cut them "
            "yourself (into months, say), turn them into text, or leave them out"
        )
    infinite = [name for name, column in columns.items() if has_infinity(column)]
    if infinite:
        raise ValueError(f"expected finite numbers, got infinity in {', '.join(infinite)}")
    found = [name for name, column in columns.items() if is_measurement(column)]
    if found and bins is None:
        raise ValueError(
            f"expected discrete values, got numbers in {', '.join(found)} (fractions, or more "
            f"than {MAX_WHOLE_NUMBERS} different whole numbers); ask for bins (--bins 4, in Python "
            "bins=4), cut them yourself, turn them into text, or leave them out"
        )
