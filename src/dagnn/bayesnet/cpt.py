"""Conditional probability tables, with a row for each parent configuration that was seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dagnn.bayesnet.table import Table, number_rows

__all__ = ["Cpt", "fit_cpt"]


@dataclass(frozen=True, eq=False)
class Cpt:
    """P(variable | parents). A configuration that is not listed gives all levels the same chance.

    Args:
        parents: The parents' indices.
        cardinalities: Their numbers of levels.
        configurations: The parents' codes, each combination at most once. int32 ``[J, P]``
        probabilities: float64 ``[J, r]``, rows sum to 1.
    """

    parents: tuple[int, ...]
    cardinalities: tuple[int, ...]
    configurations: np.ndarray
    probabilities: np.ndarray

    @property
    def num_levels(self) -> int:
        return self.probabilities.shape[1]

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """The row that holds for each row of data; −1: none. int32 ``[N, n]`` to int64 ``[N]``"""
        known = len(self.configurations)
        both = np.concatenate([self.configurations, codes[:, list(self.parents)]])
        number, first = number_rows(both, self.cardinalities)
        row = first[number[known:]]
        return np.where(row < known, row, -1)

    def look_up(self, codes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The probability of each value given its row of data. ``[N, n]``, ``[N]`` to ``[N]``"""
        row = self.rows(codes)
        found: np.ndarray = np.where(row >= 0, self.probabilities[row, values], 1 / self.num_levels)
        return found

    def draw(self, codes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """A value for each row of data. int32 ``[N, n]`` to int32 ``[N]``"""
        even = np.full((1, self.num_levels), 1 / self.num_levels)
        up_to = np.concatenate([self.probabilities, even]).cumsum(axis=1)  # row −1 is the even one
        up_to /= up_to[:, -1:]
        row, chance = self.rows(codes), generator.random(len(codes))
        value = np.zeros(len(codes), dtype=np.int32)
        for level in range(self.num_levels - 1):
            value += chance >= up_to[row, level]
        return value


def fit_cpt(table: Table, child: int, parents: tuple[int, ...], smoothing: float = 0.0) -> Cpt:
    """The relative frequencies, after `smoothing` rows were spread evenly over every row."""
    if not 0 <= smoothing < np.inf:
        raise ValueError(f"expected smoothing of at least 0, got {smoothing}")
    cardinality = table.cardinalities
    of_parents = tuple(int(cardinality[u]) for u in parents)
    number, first = number_rows(table.codes[:, list(parents)], of_parents)
    counts = np.full((len(first), int(cardinality[child])), smoothing / cardinality[child])
    np.add.at(counts, (number, table.codes[:, child]), 1.0)
    return Cpt(
        parents,
        of_parents,
        table.codes[first][:, list(parents)],
        counts / counts.sum(axis=1, keepdims=True),
    )
