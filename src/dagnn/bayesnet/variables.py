"""What a column's values mean: names of levels, and how values are told to be one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

__all__ = ["MAX_WHOLE_NUMBERS", "Variable", "has_infinity", "is_measurement", "is_time"]

MAX_WHOLE_NUMBERS = 20  # a column of more different numbers is a measurement, not a category
TIMES = {"datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period"}


@dataclass(frozen=True)
class Variable:
    """A discrete variable.

    Args:
        name: Its name.
        levels: The names of its values, all different.
        cuts: If it was made from numbers, where they were cut: level i has all up to ``cuts[i]``
            that are not in an earlier one, and a last level the rest.
        has_missing: Whether the last level of all is that of missing values.

    Example:
        >>> import pandas as pd
        >>> length = Variable.of_column("length", pd.Series([0.5, 1.5, 2.5, None]), bins=2)
        >>> length.levels
        ('<= 1.5', '> 1.5', 'missing')
        >>> length.encode(pd.Series([None, 7.0, 0.0]))
        array([2, 1, 0], dtype=int32)
    """

    name: str
    levels: tuple[str, ...]
    cuts: tuple[float, ...] | None = None
    has_missing: bool = False

    @classmethod
    def of_column(cls, name: str, column: pd.Series, *, bins: int | None = None) -> Variable:
        """The variable of a column with values; a measurement is cut at its quantiles."""
        present = column.dropna()
        cuts: tuple[float, ...] | None = None
        if bins is not None and is_measurement(column):
            cuts = _quantiles(_numbers(present), bins)
            levels = _names_between(cuts)
        else:
            levels = _sorted_levels(present)
        has_missing = len(present) < len(column)
        if has_missing:
            missing = "missing"
            while missing in levels:
                missing += "_"
            levels.append(missing)
        return cls(name, tuple(levels), cuts, has_missing)

    def encode(self, column: pd.Series) -> np.ndarray:
        """Values as indices of levels. int32 ``[N]``

        Raises:
            ValueError: If a value is none of the levels.
        """
        absent = column.isna().to_numpy()
        codes = np.full(len(column), len(self.levels) - 1 if self.has_missing else -1, np.int32)
        present = column[~absent]
        if self.cuts is not None and _is_numeric(column):
            codes[~absent] = np.searchsorted(self.cuts, _numbers(present), side="left")
        else:
            codes[~absent] = pd.Index(self.levels).get_indexer(_labels(present))
        if (codes < 0).any():
            known = ", ".join(self.levels[:10]) + (", …" if len(self.levels) > 10 else "")
            strange = column.iloc[int(np.argmax(codes < 0))]
            raise ValueError(f"expected values of {self.name!r} among {known}; got {strange!r}")
        return codes


def is_measurement(column: pd.Series) -> bool:
    """Whether a column has numbers that are no categories: fractions, or many different ones."""
    values = _numbers(column)
    return bool((values % 1 != 0).any()) or len(np.unique(values)) > MAX_WHOLE_NUMBERS


def has_infinity(column: pd.Series) -> bool:
    """Whether some number of a column is infinite."""
    return bool(np.isinf(_numbers(column)).any())


def is_time(column: pd.Series) -> bool:
    """Whether a column has dates, times or durations: measurements, but not numbers to cut."""
    types = pd.api.types
    if column.dtype == object:
        return types.infer_dtype(column, skipna=True) in TIMES
    return (
        types.is_datetime64_any_dtype(column)
        or types.is_timedelta64_dtype(column)
        or isinstance(column.dtype, pd.PeriodDtype)
    )


def _is_numeric(column: pd.Series) -> bool:
    if column.dtype == object:  # as Parquet's decimals come
        return bool(pd.api.types.infer_dtype(column, skipna=True) == "decimal")
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(column: pd.Series) -> np.ndarray:
    """The numbers of a column of numbers; none of any other."""
    present = column.dropna() if _is_numeric(column) else column[:0]
    return np.asarray(present.to_numpy(dtype=np.float64))


def _labels(column: pd.Series) -> list[str]:
    """Values as texts; whole numbers without a decimal point, however they are stored."""
    values = column.to_numpy(dtype=object)
    if _is_numeric(column):
        values = [int(x) if x % 1 == 0 else x for x in values]
    return [str(value) for value in values]


def _sorted_levels(column: pd.Series) -> list[str]:
    """The levels that occur: categories in their own order, numbers by size, texts by letters."""
    occurring = set(_labels(column))
    if isinstance(column.dtype, pd.CategoricalDtype):
        labels = dict.fromkeys(map(str, column.dtype.categories))
        return [label for label in labels if label in occurring]
    if _is_numeric(column):
        return sorted(occurring, key=int)
    return sorted(occurring)


def _quantiles(values: np.ndarray, bins: int) -> tuple[float, ...]:
    """Where to cut for levels of about the same number of values; none of them is empty."""
    cuts = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf"))
    return tuple(cuts[cuts < values.max()].tolist())


def _names_between(cuts: Sequence[float]) -> list[str]:
    if not cuts:
        return ["all"]
    for digits in range(3, 18):  # as few as tell the cuts apart; 17 always do
        texts = [f"{cut:.{digits}g}" for cut in cuts]
        if len(set(texts)) == len(cuts):
            break
    return [f"<= {texts[0]}", *(f"{a} to {b}" for a, b in pairwise(texts)), f"> {texts[-1]}"]
