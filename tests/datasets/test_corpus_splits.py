"""Every split gets something, and what is large enough is divided as by names alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagnn.datasets.corpus_splits import divide, split_of

UNITS = st.sets(st.text(max_size=5), min_size=3, max_size=40)


@given(UNITS, st.integers(0, 5))
def test_no_split_is_empty(units: set[str], seed: int) -> None:
    splits = divide(units, seed)
    assert splits.keys() == units
    assert set(splits.values()) == {"train", "valid", "test"}
    assert divide(sorted(units, reverse=True), seed) == splits


@given(UNITS, st.integers(0, 5))
def test_names_alone_decide_where_they_fill_all_splits(units: set[str], seed: int) -> None:
    by_name = {unit: split_of(unit, seed) for unit in units}
    if len(set(by_name.values())) == 3:
        assert divide(units, seed) == by_name
    else:
        moved = [unit for unit, split in divide(units, seed).items() if by_name[unit] != split]
        assert len(moved) <= 2


def test_fewer_than_three_stay_where_they_are() -> None:
    assert divide([], 0) == {}
    assert divide(["a", "b"], 0) == {unit: split_of(unit, 0) for unit in "ab"}


def test_splits_are_of_the_shares_that_are_meant() -> None:
    splits = [split_of(f"project {i}", seed=3) for i in range(2_000)]
    assert 0.77 < splits.count("train") / 2_000 < 0.83
    assert 0.08 < splits.count("valid") / 2_000 < 0.12


def test_the_split_of_a_name_stays() -> None:
    """Results are of corpora that were split so."""
    names = ("stdlib/optparse", "numpy", "networkx", "pandas")
    assert [split_of(name, 0) for name in names] == ["test", "train", "train", "valid"]
