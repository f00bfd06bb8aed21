r"""Cells of contingency tables and what scores sum over them, compiled.

Rows that agree in a set of columns :math:`X` form a *cell*. All scores of families are made of sums
over cells, the *potentials* of :math:`X`:

.. math::
    g(X) = \sum_{c \in \mathrm{cells}(X)} f(N_c)

Cells are found by partition refinement: one more column splits every cell on its own. So no array
has the size of the product of cardinalities, and the cells of :math:`2^n` sets of columns cost one
pass over the rows each. A row that is alone in its cell stays alone: it is counted once and left
out, which is what makes large sets cheap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

__all__ = ["AIC_BIC", "BDEU", "K2_FAMILY", "K2_PARENTS", "all_potentials", "potential"]

AIC_BIC, BDEU, K2_FAMILY, K2_PARENTS = range(4)

SMALL = 64  # cells of fewer rows are counted by their size, and f is computed once for each size


class Cells(NamedTuple):
    """The cells of a few sets of columns, one set in each of `D` places."""

    order: np.ndarray  # [D, M] rows, cell by cell, less the closed ones
    start: np.ndarray  # [D, M + 1] where each cell begins in `order`
    size: np.ndarray  # [D, M] the weight of each cell
    closed: np.ndarray  # [D, SMALL] how many cells of a single row there are, by its weight
    num_open: np.ndarray  # [D] how many cells `start` and `size` list
    num_possible: np.ndarray  # [D] the product of cardinalities, at most 1e300
    rows_with: np.ndarray  # [largest cardinality] scratch, all zero
    weight_with: np.ndarray  # [largest cardinality] scratch, all zero
    place_of: np.ndarray  # [largest cardinality] scratch


@numba.njit(cache=True, nogil=True)
def _undivided(
    weight: np.ndarray, places: int, largest_cardinality: int
) -> Cells:  # pragma: no cover - compiled
    """Places for cells; in the first, the one cell of the empty set."""
    num_rows = len(weight)
    cells = Cells(
        np.empty((places, num_rows), dtype=np.int32),
        np.empty((places, num_rows + 1), dtype=np.int32),
        np.empty((places, num_rows), dtype=np.int64),
        np.zeros((places, SMALL), dtype=np.int64),
        np.empty(places, dtype=np.int64),
        np.empty(places, dtype=np.float64),
        np.zeros(largest_cardinality, dtype=np.int64),
        np.zeros(largest_cardinality, dtype=np.int64),
        np.zeros(largest_cardinality, dtype=np.int64),
    )
    cells.order[0] = np.arange(num_rows)
    cells.start[0, 0], cells.start[0, 1] = 0, num_rows
    cells.size[0, 0] = weight.sum()
    cells.num_open[0], cells.num_possible[0] = 1, 1.0
    return cells


@numba.njit(cache=True, nogil=True)
def _refine(
    cells: Cells, old: int, new: int, column: np.ndarray, weight: np.ndarray, cardinality: int
) -> None:  # pragma: no cover - compiled
    """Split the cells in place `old` by one more column, into place `new`."""
    order, start = cells.order[old], cells.start[old]
    new_order, new_start, new_size = cells.order[new], cells.start[new], cells.size[new]
    closed = cells.closed[new]
    closed[:] = cells.closed[old]
    end, num_open = 0, 0
    for cell in range(cells.num_open[old]):
        for i in range(start[cell], start[cell + 1]):
            value = column[order[i]]
            cells.rows_with[value] += 1
            cells.weight_with[value] += weight[order[i]]
        for i in range(start[cell], start[cell + 1]):
            row = order[i]
            value = column[row]
            rows = cells.rows_with[value]
            if rows > 0:  # the first row with this value makes a new cell, or is one
                count = cells.weight_with[value]
                cells.rows_with[value] = cells.weight_with[value] = 0
                if rows == 1 and count < SMALL:
                    closed[count] += 1
                    continue
                new_start[num_open], new_size[num_open] = end, count
                num_open += 1
                cells.place_of[value] = end
                end += rows
            new_order[cells.place_of[value]] = row
            cells.place_of[value] += 1
    new_start[num_open] = end
    cells.num_open[new] = num_open
    cells.num_possible[new] = min(cells.num_possible[old] * cardinality, 1e300)


@numba.njit(cache=True, nogil=True)
def _term(
    count: int, kind: int, parameter: float, num_possible: float
) -> float:  # pragma: no cover - compiled
    if kind == AIC_BIC:
        return count * math.log(count)
    if kind == BDEU:
        prior = parameter / num_possible
        return math.lgamma(prior + count) - math.lgamma(prior)
    if kind == K2_FAMILY:
        return math.lgamma(count + 1.0)
    return math.lgamma(count + parameter) - math.lgamma(parameter)


@numba.njit(cache=True, nogil=True)
def _sum_of_terms(
    cells: Cells, place: int, kind: int, parameter: float
) -> float:  # pragma: no cover - compiled
    possible = cells.num_possible[place]
    total = 0.0
    of_size = cells.closed[place].copy()
    for cell in range(cells.num_open[place]):
        count = cells.size[place, cell]
        if count < SMALL:
            of_size[count] += 1
        else:
            total += _term(count, kind, parameter, possible)
    for count in range(1, SMALL):
        if of_size[count] > 0:
            total += of_size[count] * _term(count, kind, parameter, possible)
    if kind == AIC_BIC:
        total -= parameter * possible
    return total


@numba.njit(cache=True, nogil=True)
def potential(
    columns: np.ndarray,
    weight: np.ndarray,
    cardinality: np.ndarray,
    chosen: np.ndarray,
    kind: int,
    parameter: float,
) -> float:  # pragma: no cover - compiled
    """The potential of one set of columns.

    Args:
        columns: Codes from 0 to the cardinality. ``[n, M]``
        weight: How often each row occurs. ``[M]``
        cardinality: The number of values of each column. ``[n]``
        chosen: The columns of the set.
        kind: Which f.
        parameter: BIC and AIC: the penalty of a parameter; BDeu: the equivalent sample size; K2's
            parents: the cardinality of the child.
    """
    cells = _undivided(weight, 2, cardinality.max())
    place = 0
    for v in chosen:
        _refine(cells, place, 1 - place, columns[v], weight, cardinality[v])
        place = 1 - place
    return _sum_of_terms(cells, place, kind, parameter)


@numba.njit(cache=True, nogil=True)
def all_potentials(
    columns: np.ndarray,
    weight: np.ndarray,
    cardinality: np.ndarray,
    first_columns: int,
    num_first: int,
    max_size: int,
    kinds: np.ndarray,
    parameters: np.ndarray,
    out: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """The potentials of all sets whose part among the first `num_first` columns is given.

    Sets are walked depth first, a set before its supersets, each with its cells on a stack.

    Args:
        first_columns: That part, a bit for each column.
        max_size: Larger sets are left as they are in `out`.
        kinds: The potentials wanted, with their `parameters`. ``[K]``
        out: Where they go, by the set's bits. ``[K, 2^n]``
    """
    num_columns = len(columns)
    places = min(num_columns, max_size) + 1
    cells = _undivided(weight, places, cardinality.max())
    member = np.empty(places, dtype=np.int64)  # of a set, its last column
    depth, bits = 0, 0
    for v in range(num_first):
        if (first_columns >> v) & 1:
            if depth + 1 == places:
                return
            _refine(cells, depth, depth + 1, columns[v], weight, cardinality[v])
            depth, bits = depth + 1, bits | (1 << v)
    root, v, entered = depth, num_first, True
    while True:
        if entered:
            for k in range(len(kinds)):
                out[k, bits] = _sum_of_terms(cells, depth, kinds[k], parameters[k])
        entered = v < num_columns and depth + 1 < places
        if entered:
            _refine(cells, depth, depth + 1, columns[v], weight, cardinality[v])
            depth, bits, v = depth + 1, bits | (1 << v), v + 1
            member[depth] = v - 1
        elif depth > root:
            v = member[depth] + 1
            depth, bits = depth - 1, bits ^ (1 << (v - 1))
        else:
            return
