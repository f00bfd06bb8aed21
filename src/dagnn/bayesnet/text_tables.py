"""What may be wrong with a table in a text file."""

from __future__ import annotations

import codecs
import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

__all__ = ["doubts_of_names", "other_format", "ragged_line"]

SHOWN = 5  # names in a note
COMPRESSED = (".bz2", ".gz", ".lz4", ".zst")  # which pyarrow reads as they are


def doubts_of_names(table: pyarrow.Table) -> tuple[str, ...]:
    """A note, if the first line, from which the names are, looks like values: most names occur in
    their own columns, or all are numbers."""
    names = [name.strip() for name in table.column_names]
    own = sum(
        name.lower() in {str(value).strip().lower() for value in column.unique().to_pylist()}
        for name, column in zip(names, table.columns, strict=True)
    )
    if 2 * own <= len(names) and not all(map(_is_number, names)):
        return ()
    shown = ", ".join(names[:SHOWN]) + ", …" * (len(names) > SHOWN)
    return (
        f"the first line was taken for the columns' names ({shown}), but looks like values; if it "
        "is a row, put a line of names (a header) before it",
    )


def ragged_line(path: Path, delimiter: str) -> str | None:
    """Where the first row begins that has more or fewer fields than the first line, if any does."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter)
        try:
            width, line = len(next(rows, [])), rows.line_num + 1
            for row in rows:
                if row and len(row) != width:  # empty lines are no rows
                    return (
                        f"line {line}: expected {width} fields, as in the first line, "
                        f"got {len(row)}"
                    )
                line = rows.line_num + 1
        except csv.Error:
            pass  # not what is looked for: whoever asks has another error to tell
    return None


def other_format(path: Path, delimiter: str) -> str | None:
    """What a file that is no table looks like instead: text in UTF-16, or fields that are separated
    by something else, which the first line has more of."""
    if path.suffix.lower() in COMPRESSED:
        return None
    with path.open("rb") as file:
        first = file.readline()
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it is text in UTF-16; save it in UTF-8"
    first = re.sub(rb'"[^"]*"', b"", first)
    counts = {mark: first.count(mark.encode()) for mark in (delimiter, ";", "\t", "|", ",")}
    most = max(counts, key=lambda mark: counts[mark])  # of equal ones the first
    if most == delimiter:
        return None
    return (
        f"its first line has more {most!r} than {delimiter!r}; save it with commas between fields "
        "(or with tabs, as .tsv), and quotes around those with a comma in them"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
