from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.table import Table
from dagnn.bayesnet.variables import Variable


def test_bins() -> None:
    frame = pd.DataFrame({"x": np.linspace(0, 1, 100), "few": [0, 1] * 50})
    table = Table.from_frame(frame, bins=4)
    assert np.bincount(table.codes[:, 0]).tolist() == [25] * 4
    assert table.levels[0][0].startswith("<= ")
    assert table.levels[1] == ("0", "1")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(2, 9))
def test_bins_keep_the_order_of_numbers(values: list[float], bins: int) -> None:
    table = Table.from_frame(pd.DataFrame({"x": [*values, 0.25]}), bins=bins)
    code = table.codes[:, 0]
    sorted_code = code[np.argsort([*values, 0.25])]
    assert (np.diff(sorted_code) >= 0).all()
    assert sorted(set(code.tolist())) == list(range(len(table.levels[0])))
    assert len(table.levels[0]) <= bins


def test_a_level_called_missing_is_not_mixed_up() -> None:
    table = Table.from_frame(pd.DataFrame({"x": ["missing", None]}), missing="category")
    assert table.levels == (("missing", "missing_"),)
    assert table.codes.tolist() == [[0], [1]]


def test_categories_keep_their_order_and_only_what_occurs() -> None:
    column = pd.Categorical(["low", "high", "low"], categories=["low", "middle", "high"])
    assert Table.from_frame(pd.DataFrame({"x": column})).levels == (("low", "high"),)


def test_cuts_are_told_apart() -> None:
    close = Variable.of_column("x", pd.Series([1, 1 + 1e-9, 1 + 2e-9, 1 + 3e-9]), bins=4)
    assert len(set(close.levels)) == 4
    assert close.levels[0] == "<= 1"
    same = Variable.of_column("x", pd.Series([0.5, 0.5]), bins=4)
    assert same.levels == ("all",)
    assert same.encode(pd.Series([0.5, 7.0])).tolist() == [0, 0]


def test_strange_values_are_named() -> None:
    variable = Variable("x", tuple(map(str, range(30))))
    with pytest.raises(ValueError, match=r"'x' among 0, 1, .*, 9, …; got 'y'"):
        variable.encode(pd.Series(["1", "y"]))
    with pytest.raises(ValueError, match="got None"):
        variable.encode(pd.Series(["1", None], dtype=object))


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_texts_however_they_are_stored(dtype: object) -> None:
    column = pd.Series(["b", None, "a"], dtype=dtype)
    variable = Variable.of_column("x", column)
    assert variable == Variable("x", ("a", "b", "missing"), has_missing=True)
    assert variable.encode(column).tolist() == [1, 2, 0]


@pytest.mark.parametrize("dtype", ["Int64", "float64", "Float32"])
def test_whole_numbers_however_they_are_stored(dtype: str) -> None:
    column = pd.Series([10, None, 9], dtype=dtype)
    variable = Variable.of_column("x", column)
    assert variable.levels == ("9", "10", "missing")
    assert variable.encode(column).tolist() == [1, 2, 0]


def test_decimals_are_numbers() -> None:
    prices = pd.Series([Decimal("19.99"), None, Decimal("5.00"), Decimal("7.25")])
    with pytest.raises(ValueError, match=r"got numbers in price .*ask for bins"):
        Table.from_frame(pd.DataFrame({"price": prices}), missing="category")
    table = Table.from_frame(pd.DataFrame({"price": prices}), missing="category", bins=3)
    assert table.levels == (("<= 5", "5 to 7.25", "> 7.25", "missing"),)
    assert table.codes[:, 0].tolist() == [2, 3, 0, 1]
    whole = pd.Series([Decimal("10"), Decimal("9.0")])
    assert Variable.of_column("x", whole).levels == ("9", "10")


@pytest.mark.parametrize("bins", [None, 2])
@pytest.mark.parametrize(
    "times",
    [
        pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"])),
        pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True)),
        pd.Series(pd.to_timedelta([1, 2], unit="s")),
        pd.Series([date(2024, 1, 1), date(2024, 1, 2)]),
    ],
    ids=["timestamp", "with zone", "duration", "date"],
)
def test_times_are_refused_with_advice(times: pd.Series, bins: int | None) -> None:
    with pytest.raises(ValueError, match="dates or times in when; cut them yourself"):
        Table.from_frame(pd.DataFrame({"when": times}), bins=bins)
