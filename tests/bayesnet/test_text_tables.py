from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dagnn.bayesnet.table import read_table
from dagnn.bayesnet.text_tables import other_format, ragged_line


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


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.csv", b"a;b, c;d\nx;y;z\n", "more ';' than ','; save it with commas"),
        ("a.csv", b"a;b;c\n1,5;2,5;3\n1,5;2;3\n", "more ';' than ','"),
        ("a.tsv", b"a,b,c\nx,y\tz,1\n", r"more ',' than '\\t'"),
        ("a.csv", "a,b\nx,y,z\n".encode("utf-16"), "it is text in UTF-16; save it in UTF-8"),
    ],
)
def test_what_is_no_table_looks_like(name: str, content: bytes, hint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=hint):
        read_table(tmp_path / name)


@pytest.mark.parametrize("head", ["a,b", '"a;b;c",d'])
def test_a_ragged_line_alone_needs_no_hint(head: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{head}\nx\n")
    with pytest.raises(ValueError, match=r"expected 2 fields, as in the first line, got 1$"):
        read_table(tmp_path / "a.csv")


def test_compressed_bytes_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\nx\n"))
    assert other_format(tmp_path / "a.csv.gz", ",") is None
    (tmp_path / "a.csv").write_bytes(b"a;b;c\n")
    assert other_format(tmp_path / "a.csv", ",") is not None
