"""What a learned network must and must not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dagnn.bayesnet.dags import check_dag
from dagnn.graph.levels import CycleError

__all__ = ["Constraints"]

Edge = str | tuple[str, str]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Edges that are required or forbidden, and the most parents that a node may have.

    Args:
        required: ``required[v, u]`` for the edge u → v. bool ``[n, n]``
        forbidden: In the same form.
        max_parents: Between 0 and n − 1.
    """

    required: np.ndarray
    forbidden: np.ndarray
    max_parents: int

    @classmethod
    def over(
        cls,
        names: Sequence[str],
        *,
        require: Iterable[Edge] = (),
        forbid: Iterable[Edge] = (),
        max_parents: int | None = None,
    ) -> Constraints:
        """Constraints over named variables.

        Args:
            names: The variables.
            require: Edges, such as ``"A:B"`` or ``("A", "B")`` for A → B.
            forbid: Likewise.
            max_parents: By default there is no limit.

        Raises:
            ValueError: If a name is unknown, or the constraints contradict each other.
            CycleError: If required edges form a cycle.

        Example:
            >>> Constraints.over(["A", "B"], require=["A:B"], forbid=["A:B"])
            Traceback (most recent call last):
            ...
            ValueError: expected edges to be required or forbidden, got both for A:B
        """
        size = len(names)
        if max_parents is not None and max_parents < 0:
            raise ValueError(f"expected max_parents of at least 0, got {max_parents}")
        limit = max(size - 1, 0) if max_parents is None else min(max_parents, max(size - 1, 0))
        required, forbidden = _matrix(require, names), _matrix(forbid, names)
        np.fill_diagonal(forbidden, False)
        both = [f"{names[u]}:{names[v]}" for v, u in np.argwhere(required & forbidden)]
        if both:
            raise ValueError(
                f"expected edges to be required or forbidden, got both for {', '.join(both)}"
            )
        try:
            check_dag(required, names)
        except CycleError as error:
            raise CycleError(f"required edges: {error}", error.cycle) from error
        for v in np.flatnonzero(required.sum(axis=1) > limit):
            raise ValueError(
                f"expected at most {limit} parents, got {required[v].sum()} required for "
                f"{names[int(v)]}: {', '.join(names[int(u)] for u in np.flatnonzero(required[v]))}"
            )
        return cls(required, forbidden, limit)

    def allow(self, adjacency: np.ndarray) -> np.ndarray:
        """Which graphs meet the constraints. bool ``[G, n, n]`` to bool ``[G]``"""
        broken = (self.required & ~adjacency) | (self.forbidden & adjacency)
        allowed: np.ndarray = ~broken.any(axis=(1, 2)) & (
            adjacency.sum(axis=2).max(axis=1, initial=0) <= self.max_parents
        )
        return allowed


def _matrix(edges: Iterable[Edge], names: Sequence[str]) -> np.ndarray:
    index = {name: i for i, name in enumerate(names)}
    matrix = np.zeros((len(names), len(names)), dtype=bool)
    if isinstance(edges, str):
        raise TypeError(f"expected a list of edges, got the text {edges!r}; put it in a list")
    for edge in edges:
        u, v = _ends(edge, index)
        matrix[v, u] = True
    return matrix


def _ends(edge: Edge, index: dict[str, int]) -> tuple[int, int]:
    if isinstance(edge, str):
        parts = edge.split(":")  # names may have colons of their own: try every one
        pairs = [(":".join(parts[:i]), ":".join(parts[i:])) for i in range(1, len(parts))]
        if not pairs:
            raise ValueError(f"expected an edge such as A:B (from A to B), got {edge!r}")
    else:
        pairs = [(edge[0], edge[1])]
    known = [(index[u], index[v]) for u, v in pairs if u in index and v in index]
    if len(known) > 1:
        raise ValueError(f"expected one way to read {edge!r}, got several; pass a pair of names")
    if not known:
        strange = [name for name in pairs[0] if name not in index]
        raise ValueError(
            f"expected names of columns in the edge {edge!r}, got {', '.join(strange)}; there are "
            f"{', '.join(list(index)[:30])}{', …' if len(index) > 30 else ''}"
        )
    return known[0]
