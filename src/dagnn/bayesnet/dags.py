"""Small facts about DAGs as dense adjacency matrices, ``adjacency[v, u]`` for an edge u → v."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dagnn.graph.levels import CycleError

__all__ = ["ancestors", "check_dag", "is_acyclic", "node_levels", "parent_bits"]


def is_acyclic(adjacency: np.ndarray) -> np.ndarray:
    """Which graphs have no cycle. bool ``[G, n, n]`` to bool ``[G]``

    Example:
        >>> is_acyclic(np.array([[[0, 0], [1, 0]], [[0, 1], [1, 0]]], dtype=bool))
        array([ True, False])
    """
    left = np.ones(adjacency.shape[:2], dtype=bool)
    for _ in range(adjacency.shape[1]):
        left &= (adjacency & left[:, None, :]).any(axis=2)
    return np.asarray(~left.any(axis=1))


def ancestors(adjacency: np.ndarray) -> np.ndarray:
    """``[v, u]``: whether a path of at least one edge leads from u to v. bool ``[n, n]``"""
    reached = adjacency.copy()
    steps = 1
    while steps < len(adjacency):  # paths of twice the length each time
        reached |= (reached.astype(np.float32) @ reached.astype(np.float32)) > 0
        steps *= 2
    return reached


def node_levels(adjacency: np.ndarray) -> np.ndarray:
    """The number of edges on the longest path to each node of a DAG. int64 ``[n]``"""
    level = np.zeros(len(adjacency), dtype=np.int64)
    for _ in range(len(adjacency)):
        level = np.where(adjacency, level + 1, 0).max(axis=1, initial=0)
    return level


def check_dag(adjacency: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The matrix as booleans, if it is that of a DAG over these names; an error otherwise."""
    adjacency = np.asarray(adjacency)
    size = len(names)
    if adjacency.shape != (size, size) or adjacency.dtype != bool:
        raise ValueError(
            f"expected a boolean adjacency matrix of shape [{size}, {size}], got "
            f"{list(adjacency.shape)} and {adjacency.dtype}"
        )
    reached = ancestors(adjacency)
    if reached.diagonal().any():
        raise CycleError.of([names[v] for v in _cycle(adjacency, reached)])
    return adjacency


def parent_bits(adjacency: np.ndarray) -> list[int]:
    """Of every node, its parents as the bits of an integer."""
    return [sum(1 << int(u) for u in np.flatnonzero(row)) for row in adjacency]


def _cycle(adjacency: np.ndarray, reached: np.ndarray) -> list[int]:
    on_cycle = reached.diagonal()
    v = int(np.argmax(on_cycle))
    path = [v]
    while True:  # back along edges within the strong component, until a node comes again
        same = adjacency[path[-1]] & on_cycle & reached[:, v] & reached[v]
        u = int(np.argmax(same))
        if u in path:
            return path[path.index(u) :][::-1]
        path.append(u)
