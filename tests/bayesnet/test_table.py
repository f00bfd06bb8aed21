from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.table import Table, encode_frame, number_rows, read_table


def written(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_csv(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "\ufeffa b,größe\nyes,1\nno,3\nyes,10\n"))
    assert table.names == ("a b", "größe")
    assert table.levels == (("no", "yes"), ("1", "3", "10"))
    assert table.codes.tolist() == [[1, 0], [0, 1], [1, 2]]
    assert table.notes == ()
    assert repr(table) == "Table(3 rows, 2 columns)"


def test_csv_parquet_and_frame_agree(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": ["b", "a", None], "y": [True, False, True], "z": [1.0, None, 2.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "t.parquet")
    wanted = Table.from_frame(frame, missing="category")
    assert wanted.levels == (("a", "b", "missing"), ("False", "True"), ("1", "2", "missing"))
    for name in ("t.csv", "t.tsv", "t.parquet"):
        table = read_table(tmp_path / name, missing="category")
        assert (table.codes == wanted.codes).all()
        assert [len(levels) for levels in table.levels] == [3, 2, 3]


def test_missing_values_are_dropped_and_counted() -> None:
    frame = pd.DataFrame({"x": ["a", None, "b"], "y": ["c", "d", "d"]})
    table = Table.from_frame(frame)
    [note] = table.notes
    assert note.startswith(
        "dropped 1 of 3 rows with missing values (in x); to keep them: --missing"
    )
    assert table.codes.tolist() == [[0, 0], [1, 1]]


def test_constant_columns_are_noted() -> None:
    table = Table.from_frame(pd.DataFrame({"x": ["a", "a"], "y": ["b", "c"]}))
    assert len(table.notes) == 1
    assert "constant" in table.notes[0]
    assert table.notes[0].endswith(": x")
    (note,) = Table.from_frame(pd.DataFrame({"x": ["a"], "y": ["b"]})).notes
    assert note.startswith("one row, in which all is constant")


def test_hundreds_of_levels() -> None:
    names = [f"town {i}" for i in range(700)]
    table = Table.from_frame(pd.DataFrame({"town": names * 2}))
    assert table.cardinalities.tolist() == [700]


@pytest.mark.parametrize(
    "column",
    [[0.5, 1.0, 2.0], list(range(21)), [1e300, 2.5, -1.0]],
    ids=["fraction", "many", "big"],
)
def test_measurements_are_refused_with_advice(column: list[float]) -> None:
    with pytest.raises(ValueError, match=r"got numbers in length .*ask for bins \(--bins 4"):
        Table.from_frame(pd.DataFrame({"length": column}))


def test_infinite_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="got infinity in x"):
        Table.from_frame(pd.DataFrame({"x": [0.5, float("inf")]}), bins=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("a,b\n", "expected a table with rows, got none"),
        ("a,a\nx,y\n", "got a more than once"),
        ("a,b\nx\n", "line 2: expected 2 fields, as in the first line, got 1"),
        ("a,b\nx,y,z\n", "line 2: expected 2 fields, as in the first line, got 3"),
        ("1,1,0\n0,1,0\n", r"got 1 more than once; .*\(1, 1, 0\), but .*a header"),
        ("5.1,3.5\n4.9,3.0\n", "got numbers in .*a header"),
        ("a,\nx,y\n", "expected a name for every column, got none for 2"),
        ("a;b\nx;y\n", "separated by commas"),
        ("a,b\n,x\ny,NA\n", "got 2 of 2 rows with missing values"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["yes,no\nno,no\nyes,yes\n", "True,1\nFalse,0\nTrue,1\n", "0,1\nx,y\n"]
)
def test_names_that_look_like_values_are_noted(tmp_path: Path, text: str) -> None:
    notes = read_table(written(tmp_path, text)).notes
    [note] = [note for note in notes if "constant" not in note]
    first = text.split("\n")[0].replace(",", ", ")
    assert note.startswith(f"the first line was taken for the columns' names ({first}), but")
    table = pd.DataFrame({"0": ["x", "y"], "1": ["u", "v"]})
    table.to_parquet(tmp_path / "t.parquet")
    assert not read_table(tmp_path / "t.parquet").notes  # it has no first line


def test_one_name_among_its_values_is_no_doubt(tmp_path: Path) -> None:
    assert not read_table(written(tmp_path, "a,b\na,x\nc,y\n")).notes


def test_files_that_are_not_tables(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,y\n")
    with pytest.raises(ValueError, match="expected a table in"):
        read_table(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"UTF-?8"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv")


def test_bad_arguments() -> None:
    frame = pd.DataFrame({"x": ["a", "b"]})
    with pytest.raises(TypeError, match="DataFrame, got list"):
        Table.from_frame([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'drop' or 'category'"):
        Table.from_frame(frame, missing="keep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 2 bins, got 1"):
        Table.from_frame(frame, bins=1)
    with pytest.raises(ValueError, match="with columns, got none"):
        Table.from_frame(pd.DataFrame(index=[0, 1]))


def test_encode() -> None:
    table = Table.from_frame(pd.DataFrame({"x": ["a", "b"], "y": [1, 2]}))
    swapped = pd.DataFrame({"y": [2.0], "x": ["a"]})
    assert encode_frame(table.variables, swapped).tolist() == [[0, 1]]
    assert encode_frame(table.variables, table.to_frame()).tolist() == table.codes.tolist()
    with pytest.raises(ValueError, match="a column 'y', got x"):
        encode_frame(table.variables, pd.DataFrame({"x": ["a"]}))
    with pytest.raises(ValueError, match="values of 'x' among a, b; got 'c'"):
        encode_frame(table.variables, pd.DataFrame({"x": ["a", "c"], "y": [1, 1]}))


def test_encode_numbered_columns_and_missing_values() -> None:
    frame = pd.DataFrame([["a", None], ["b", "c"]])
    table = Table.from_frame(frame, missing="category")
    assert table.names == ("0", "1")
    assert encode_frame(table.variables, frame).tolist() == table.codes.tolist()


def test_resample_keeps_levels_and_is_seeded() -> None:
    table = Table.from_frame(pd.DataFrame({"x": list("abcdefgh")}))
    first, second = (table.resample(np.random.default_rng(1)) for _ in range(2))
    assert (first.codes == second.codes).all()
    assert first.levels == table.levels
    assert set(first.codes[:, 0].tolist()) < set(range(8))


@given(st.data())
def test_rows_are_numbered_in_order(data: st.DataObject) -> None:
    cardinalities = data.draw(st.lists(st.sampled_from([1, 2, 3, 2**40]), max_size=4))
    count = data.draw(st.integers(0, 12))
    rows = [[data.draw(st.integers(0, min(r, 3) - 1)) for r in cardinalities] for _ in range(count)]
    codes = np.array(rows, dtype=np.int64).reshape(count, len(cardinalities))
    number, first = number_rows(codes, cardinalities)
    unique = sorted({tuple(row) for row in rows})
    assert [tuple(row) for row in codes[first].tolist()] == unique
    assert number.tolist() == [unique.index(tuple(row)) for row in rows]
    assert first.tolist() == [rows.index(list(row)) for row in unique]
