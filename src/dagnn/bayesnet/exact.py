r"""The best network of all, by dynamic programming over sets of variables.

With :math:`b_v(C)` the best score of :math:`v` with parents out of :math:`C`, and :math:`B(W)` that
of a network over :math:`W`, whose last variable in a topological order is some :math:`v`:

.. math::
    b_v(C) = \max\bigl(\{s(v, C)\} \cup \{b_v(C \setminus \{c\}) \mid c \in C\}\bigr), \qquad
    B(W) = \max_{v \in W} B(W \setminus \{v\}) + b_v(W \setminus \{v\})

(Silander and Myllymäki, *A simple approach for finding the globally optimal Bayesian network
structure*, 2006.) Memory is at most :math:`(4n + 17) 2^n` bytes, 102 MB for 20 variables, and while
potentials are computed :math:`16 (n + 1)` bytes for each distinct row and thread. K2 adds
:math:`8 \cdot 2^n` bytes for each cardinality that occurs.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.scores import MAX_VARIABLES, FamilyScores, Progress

__all__ = ["SearchResult", "exact_search"]


class SearchResult(NamedTuple):
    """A network that a search found."""

    adjacency: np.ndarray  # bool [n, n], adjacency[v, u] for u → v
    score: float


def exact_search(
    scores: FamilyScores,
    constraints: Constraints | None = None,
    *,
    progress: Progress | None = None,
) -> SearchResult:
    """The network with the highest score; of families that tie, one with the fewest parents.

    Args:
        scores: The score.
        constraints: What networks must have.
        progress: Called with how much is done, and how much there is.

    Raises:
        ValueError: If there are more than 20 variables.

    Example:
        >>> import pandas as pd
        >>> from dagnn.bayesnet.table import Table
        >>> frame = pd.DataFrame({"a": [0, 1] * 10, "b": [0, 1] * 10, "c": [0, 0, 1, 1] * 5})
        >>> exact_search(FamilyScores(Table.from_frame(frame))).adjacency.astype(int)
        array([[0, 1, 0],
               [0, 0, 0],
               [0, 0, 0]])
    """
    n = scores.num_variables
    if n > MAX_VARIABLES:
        raise ValueError(
            f"expected at most {MAX_VARIABLES} variables for the exact search, got {n}; use hill "
            "climbing"
        )
    if constraints is None:
        constraints = Constraints.over(scores.table.names)
    bit = 1 << np.arange(n)
    required = constraints.required @ bit
    allowed = ~constraints.forbidden @ bit & ~bit
    potentials = scores.potentials(constraints.max_parents + 1, progress=progress)
    best_family = np.empty((n, 1 << max(n - 1, 0)))
    for v in range(n):
        _best_families(
            v,
            potentials[0],
            potentials[scores.potential_of_parents[v]],
            required[v],
            allowed[v],
            constraints.max_parents,
            best_family[v],
        )
    last = _last_variables(best_family)
    adjacency = np.zeros((n, n), dtype=bool)
    left = (1 << n) - 1
    while left:
        v = int(last[left])
        left ^= 1 << v
        parents = _best_parents(
            v,
            left,
            potentials[0],
            potentials[scores.potential_of_parents[v]],
            required[v],
            allowed[v],
            constraints.max_parents,
        )
        adjacency[v] = (parents >> np.arange(n)) & 1
    return SearchResult(adjacency, float(scores.node_scores(adjacency).sum()))


@numba.njit(cache=True, nogil=True)
def _size(bits: int) -> int:  # pragma: no cover - compiled
    size = 0
    while bits:
        bits &= bits - 1
        size += 1
    return size


@numba.njit(cache=True, nogil=True)
def _family(
    v: int,
    parents: int,
    joint: np.ndarray,
    marginal: np.ndarray,
    required: int,
    allowed: int,
    max_parents: int,
) -> float:  # pragma: no cover - compiled
    if parents & required != required or parents & ~allowed or _size(parents) > max_parents:
        return -np.inf
    return joint[parents | (1 << v)] - marginal[parents]


@numba.njit(cache=True, nogil=True)
def _best_families(
    v: int,
    joint: np.ndarray,
    marginal: np.ndarray,
    required: int,
    allowed: int,
    max_parents: int,
    best: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """Fill ``best`` with b_v by the bits of the candidates, bit v left out."""
    low = (1 << v) - 1
    for packed in range(len(best)):
        candidates = ((packed & ~low) << 1) | (packed & low)
        score = _family(v, candidates, joint, marginal, required, allowed, max_parents)
        left = packed
        while left:
            lowest = left & -left
            score = max(score, best[packed ^ lowest])
            left ^= lowest
        best[packed] = score


@numba.njit(cache=True, nogil=True)
def _last_variables(best_family: np.ndarray) -> np.ndarray:  # pragma: no cover - compiled
    """Of every set of variables, the last one of its best network."""
    n = len(best_family)
    best = np.zeros(1 << n)
    last = np.zeros(1 << n, dtype=np.int8)
    for members in range(1, 1 << n):
        best[members] = -np.inf
        for v in range(n):
            if (members >> v) & 1:
                others = members ^ (1 << v)
                packed = ((others >> (v + 1)) << v) | (others & ((1 << v) - 1))
                score = best[others] + best_family[v, packed]
                if score > best[members]:
                    best[members], last[members] = score, v
    return last


@numba.njit(cache=True, nogil=True)
def _best_parents(
    v: int,
    candidates: int,
    joint: np.ndarray,
    marginal: np.ndarray,
    required: int,
    allowed: int,
    max_parents: int,
) -> int:  # pragma: no cover - compiled
    """The best parents out of `candidates`: b_v is not kept with them, so they are sought again."""
    best, found, parents = -np.inf, 0, candidates
    while True:
        score = _family(v, parents, joint, marginal, required, allowed, max_parents)
        if score > best or (score == best and _size(parents) < _size(found)):
            best, found = score, parents
        if parents == 0:
            return found
        parents = (parents - 1) & candidates
