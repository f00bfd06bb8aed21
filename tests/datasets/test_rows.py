"""Rows of text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dagnn.datasets.rows import Rows, parse_row, parse_rows, read_rows, write_rows


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[list[int]], float]:
    size = draw(st.integers(1, 4))
    bits = st.integers(0, 1)
    graph = [[draw(st.integers(0, 2)), *(draw(bits) for _ in range(k))] for k in range(size)]
    return graph, draw(st.floats(allow_nan=False, allow_infinity=False))


@given(rows())
def test_parsing_is_the_inverse_of_writing(case: tuple[list[list[int]], float]) -> None:
    graph, score = case
    assert parse_row(f"{graph}, {score!r}", len(graph), 3) == case
    table = parse_rows([f"{graph}, {score!r}\n", "\n"], len(graph), 3)
    assert table.labels.tolist() == [[row[0] for row in graph]]
    assert table.score.tolist() == [score]
    for k, row in enumerate(graph):
        assert table.bits[0, k].int().tolist() == row[1:] + [0] * (len(graph) - k)


def test_files_round_trip(tmp_path: Path) -> None:
    bits = (torch.rand(5, 3, 3) < 0.5).tril(-1)
    table = Rows(torch.randint(0, 4, (5, 3)), bits, torch.randn(5, dtype=torch.double))
    write_rows(tmp_path / "rows.txt", table)
    for found, expected in zip(read_rows(tmp_path / "rows.txt", 3, 4), table, strict=True):
        assert torch.equal(found, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.txt"]


GOOD = "[[0], [1, 0]], 0.5"
BAD = {
    "": "no lines",
    "[[0], [1, 0]]": r"expected \[\[label, bit, …\], …\], score",
    "[[0], [1, 0]], 0.5, 1": r"expected \[\[label",
    "[[0], [1, 0], 0.5": r"expected \[\[label",
    "__import__('os').system('x')": r"expected \[\[label",
    "[" * 100_000: r"expected \[\[label",
    "[[0], [1, 0]], 'a'": r"expected \[\[label",
    '[[0], [1, 0]], "a"': "expected a number as the score, got 'a'",
    "[[0], [1, 0]], true": "expected a number as the score, got True",
    "[[0], [1, 0]], NaN": "expected a finite score, got nan",
    "[[0], [1, 0]], -Infinity": "expected a finite score, got -inf",
    "[[0], [1, 0]], 1e999": "expected a finite score, got inf",
    "7, 0.5": "expected a list of 2 rows, got 7",
    "[[0]], 0.5": "expected a list of 2 rows, got 1",
    "[[0], [1, 0], [1, 0, 0]], 0.5": "expected a list of 2 rows, got 3",
    "[[0], 1], 0.5": "expected row 1 as a list of integers, got 1",
    "[[], [1, 0]], 0.5": r"expected row 0 as a list of integers, got \[\]",
    "[[0], [1, 0.0]], 0.5": "expected row 1 as a list of integers",
    "[[0], [1, true]], 0.5": "expected row 1 as a list of integers",
    "[[0], [1]], 0.5": "expected a label and 1 bits in row 1, got 1 numbers",
    "[[0, 1], [1, 0]], 0.5": "row 0, got 2 numbers: .* a bit may point to an earlier row only",
    "[[0], [3, 0]], 0.5": "expected labels from 0 to 2, got 3 in row 1",
    "[[-1], [1, 0]], 0.5": "expected labels from 0 to 2, got -1 in row 0",
    "[[0], [1, 2]], 0.5": "expected bits 0 and 1 after the label, got row 1",
}


@pytest.mark.parametrize(("line", "message"), BAD.items(), ids=lambda text: text[:30])
def test_malformed_lines_are_refused(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_rows([GOOD, "", line] if line else [], 2, 3, name="file.txt")
    assert ("line 3" in str(error.value)) == bool(line)
    assert len(str(error.value)) < 300


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(b"\x1f\x8b\x9d")
    with pytest.raises(ValueError, match=r"a text file with a graph a line, got .*x\.gz, which"):
        read_rows(tmp_path / "x.gz", 2, 3)


def test_no_file(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none.txt", "not there"), (tmp_path, "a folder")):
        with pytest.raises(FileNotFoundError, match=f"expected a file .*, which is {what}; check"):
            read_rows(path, 2, 3)
