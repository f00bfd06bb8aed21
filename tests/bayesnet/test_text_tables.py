from __future__ import annotations

from pathlib import Path

import pytest

from dagnn.bayesnet.text_tables import ragged_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\nx,y\nu\n", 3),
        ("a,b\n\nx,y\n\nu,v,w\n", 5),  # empty lines count, and are no rows
        ('a,b\n"x\nx",y\nu,"v\nv",w\n', 4),  # a row begins where its first line is
        ('a,b\n"x,x",y\n', None),
        ("a,b\n" + "x" * 200_000 + "\n", None),  # beyond what the reader takes
        ("", None),
    ],
)
def test_the_line_of_the_first_ragged_row(tmp_path: Path, text: str, line: int | None) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    told = ragged_line(path, ",")
    assert told is None if line is None else (told or "").startswith(f"line {line}: expected 2")


def test_tabs(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("a\tb\nx,y\n", encoding="utf-8")
    assert ragged_line(path, "\t") == "line 2: expected 2 fields, as in the first line, got 1"
