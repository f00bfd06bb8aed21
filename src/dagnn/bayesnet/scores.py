r"""Scores of Bayesian networks, as sums over families.

A family is a variable :math:`v` with its parents :math:`P`. With :math:`N_{jk}` rows in which the
parents have configuration :math:`j` and the variable value :math:`k`, of :math:`q` and :math:`r`
possible ones, and :math:`N` rows in all:

.. math::
    \text{BIC} &= \sum_{jk} N_{jk} \log \frac{N_{jk}}{N_j} - \frac{\log N}{2}\, q\, (r - 1)
    \qquad (\text{AIC}: 1 \text{ in place of } (\log N) / 2)

    \text{BDeu} &= \sum_j \Bigl[ \log \frac{\Gamma(a/q)}{\Gamma(a/q + N_j)} + \sum_k
    \log \frac{\Gamma(a/qr + N_{jk})}{\Gamma(a/qr)} \Bigr]

    \text{K2} &= \sum_j \Bigl[ \log \frac{\Gamma(r)}{\Gamma(r + N_j)} + \sum_k
    \log \Gamma(1 + N_{jk}) \Bigr]

Higher is better. Each is a difference of potentials (:mod:`dagnn.bayesnet.counts`),
:math:`g(P \cup \{v\}) - g'(P)`, and in all but K2 :math:`g = g'`: then equivalent networks have the
same score, and :math:`2^n` potentials give all :math:`n 2^{n-1}` families.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, get_args

import numpy as np

from dagnn.bayesnet import counts
from dagnn.bayesnet.dags import parent_bits
from dagnn.bayesnet.table import Table, number_rows

__all__ = ["MAX_VARIABLES", "FamilyScores", "Progress", "Score"]

Score = Literal["bic", "aic", "bdeu", "k2"]

Progress = Callable[[int, int], None]  # called with how much is done, and how much there is

MAX_DENSE = 12  # up to so many variables, potentials of all sets are always computed at once
MAX_VARIABLES = 20  # and never with more


class FamilyScores:
    """The scores of all families over a table's columns, computed when asked for and kept.

    Args:
        table: The data.
        score: Which score.
        equivalent_sample_size: BDeu's :math:`a`.

    Example:
        >>> import pandas as pd
        >>> table = Table.from_frame(pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1]}))
        >>> scores = FamilyScores(table)
        >>> scores.family(1, [0]), scores.family(1, [])  # log(4) for two parameters; and one
        (-1.38..., -3.46...)
        >>> scores.score_graphs(np.array([[[0, 0], [0, 0]], [[0, 0], [1, 0]]], dtype=bool))
        array([-6.93..., -4.85...])
    """

    def __init__(
        self, table: Table, score: Score = "bic", *, equivalent_sample_size: float = 1.0
    ) -> None:
        if score not in get_args(Score):
            raise ValueError(f"expected a score of {', '.join(get_args(Score))}, got {score!r}")
        if not 0 < equivalent_sample_size < math.inf:
            raise ValueError(
                f"expected an equivalent sample size > 0, got {equivalent_sample_size}"
            )
        self.table = table
        self.name: Score = score
        self.equivalent_sample_size = equivalent_sample_size
        cardinality = table.cardinalities
        number, first = number_rows(table.codes, cardinality.tolist())
        self._columns = np.ascontiguousarray(table.codes[first].T)  # [n, M]
        self._weight = np.bincount(number)
        self._cardinality = cardinality
        # The first potential is that of a family; those of its parents follow in K2, one for each
        # cardinality that a child can have.
        self._kinds, self._parameters = np.zeros(1, dtype=np.int64), np.zeros(1)
        self._of_parents = np.zeros(table.num_columns, dtype=np.int64)  # which one, by child
        if score == "k2":
            children, index = np.unique(cardinality, return_inverse=True)
            self._kinds = np.array([counts.K2_FAMILY] + [counts.K2_PARENTS] * len(children))
            self._parameters = np.array([0.0, *children])
            self._of_parents = index + 1
        elif score == "bdeu":
            self._kinds[0], self._parameters[0] = counts.BDEU, equivalent_sample_size
        else:
            self._kinds[0] = counts.AIC_BIC
            self._parameters[0] = 1.0 if score == "aic" else math.log(table.num_rows) / 2
        self._kept: dict[tuple[int, int], float] = {}
        self._dense = np.empty((len(self._kinds), 0))
        self._dense_size = -1

    @property
    def num_variables(self) -> int:
        return self.table.num_columns

    def __repr__(self) -> str:
        return f"FamilyScores({self.name!r}, {self.table!r})"

    def family(self, child: int, parents: Iterable[int]) -> float:
        """The score of one family."""
        return self.family_of_bits(child, sum(1 << u for u in set(parents)))

    def family_of_bits(self, child: int, parents: int) -> float:
        """The score of one family, the parents given as the bits of an integer."""
        if (parents >> child) & 1:
            raise ValueError(f"expected parents other than the child {child}")
        return self._potential(0, parents | 1 << child) - self._potential(
            int(self._of_parents[child]), parents
        )

    def node_scores(self, adjacency: np.ndarray) -> np.ndarray:
        """Each node's share of a graph's score. bool ``[n, n]`` to float64 ``[n]``"""
        bits = parent_bits(adjacency)
        return np.array([self.family_of_bits(v, parents) for v, parents in enumerate(bits)])

    def score_graphs(self, adjacency: np.ndarray) -> np.ndarray:
        """The scores of many graphs; whether they have cycles is not looked at.

        Args:
            adjacency: ``adjacency[g, v, u]`` says whether there is an edge from u to v.
                bool ``[G, n, n]``

        Returns:
            float64 ``[G]``
        """
        n = self.num_variables
        adjacency = np.asarray(adjacency)
        if adjacency.ndim != 3 or adjacency.shape[1:] != (n, n) or adjacency.dtype != bool:
            raise ValueError(
                f"expected boolean adjacency matrices of shape [G, {n}, {n}], got "
                f"{list(adjacency.shape)} and {adjacency.dtype}"
            )
        total = np.zeros(len(adjacency))
        # Potentials of all sets, unless there are more of them than the graphs have families.
        if n <= MAX_DENSE or (n <= MAX_VARIABLES and 1 << n <= len(adjacency) * n):
            potentials = self.potentials()
            bit = 1 << np.arange(n)
            for v in range(n):
                parents = adjacency[:, v] @ bit
                total += potentials[0, parents | bit[v]]
                total -= potentials[self._of_parents[v], parents]
            return total
        for v in range(n):
            packed = np.packbits(adjacency[:, v], axis=1, bitorder="little")  # [G, bytes]
            keys = packed.view(f"V{packed.shape[1]}")[:, 0]
            different, index = np.unique(keys, return_inverse=True)
            scores = [
                self.family_of_bits(v, int.from_bytes(key.tobytes(), "little")) for key in different
            ]
            total += np.array(scores)[index]
        return total

    def potentials(
        self, max_size: int | None = None, *, progress: Progress | None = None
    ) -> np.ndarray:
        """The potentials of all sets of at most `max_size` variables, by the set's bits.

        Raises:
            ValueError: If there are more than 20 variables.

        Returns:
            float64 ``[K, 2^n]``, NaN where a set is larger. Row 0 is that of families, row
            ``potential_of_parents[v]`` that of the parents of v.
        """
        n = self.num_variables
        if n > MAX_VARIABLES:
            raise ValueError(f"expected at most {MAX_VARIABLES} variables for all sets, got {n}")
        max_size = n if max_size is None else min(max_size, n)
        if max_size > self._dense_size:
            dense = np.full((len(self._kinds), 1 << n), np.nan)
            num_first = min(n, 6)  # enough pieces of work for all threads to end together

            def fill(first_columns: int) -> None:
                counts.all_potentials(
                    self._columns,
                    self._weight,
                    self._cardinality,
                    first_columns,
                    num_first,
                    max_size,
                    self._kinds,
                    self._parameters,
                    dense,
                )

            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                for done, _ in enumerate(pool.map(fill, range(1 << num_first)), start=1):
                    if progress is not None:
                        progress(done, 1 << num_first)
            self._dense, self._dense_size = dense, max_size
        return self._dense

    @property
    def potential_of_parents(self) -> np.ndarray:
        """Of every child, the row of :meth:`potentials` for its parents. int64 ``[n]``"""
        return self._of_parents

    def _potential(self, which: int, bits: int) -> float:
        if bits.bit_count() <= self._dense_size:
            return float(self._dense[which, bits])
        found = self._kept.get((which, bits))
        if found is None:
            chosen = np.array([v for v in range(self.num_variables) if (bits >> v) & 1], np.int64)
            found = counts.potential(
                self._columns,
                self._weight,
                self._cardinality,
                chosen,
                self._kinds[which],
                self._parameters[which],
            )
            self._kept[which, bits] = found
        return found
