"""Networks that no data can tell apart.

Two DAGs state the same independences if and only if they have the same skeleton and the same
v-structures, u → v ← w with u and w not joined (Verma and Pearl). The class is drawn as a CPDAG: an
edge is directed where all members agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["CPDAG", "cpdag", "equivalent"]


class CPDAG(NamedTuple):
    """A class of equivalent networks."""

    directed: np.ndarray  # bool [n, n], at [v, u] for u → v in all members
    undirected: np.ndarray  # bool [n, n], symmetric


def cpdag(adjacency: np.ndarray) -> CPDAG:
    """The class of a DAG: its v-structures, and what follows from them by Meek's rules.

    Example:
        >>> chain = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=bool)
        >>> cpdag(chain).directed.any()
        np.False_
        >>> collider = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]], dtype=bool)
        >>> (cpdag(collider).directed == collider).all()
        np.True_
    """
    joined = adjacency | adjacency.T
    directed = np.asarray(_colliders(adjacency).any(axis=2))
    while True:
        undirected = joined & ~directed & ~directed.T
        new = undirected & _implied(directed, undirected, joined)
        if not new.any():
            return CPDAG(directed, undirected)
        directed = directed | new


def equivalent(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two DAGs over the same variables state the same independences."""
    same_skeleton = ((first | first.T) == (second | second.T)).all()
    return bool(same_skeleton and (_colliders(first) == _colliders(second)).all())


def _colliders(adjacency: np.ndarray) -> np.ndarray:
    """``[v, u, w]`` for u → v ← w with u and w not joined."""
    apart = ~(adjacency | adjacency.T)
    np.fill_diagonal(apart, False)
    colliders: np.ndarray = adjacency[:, :, None] & adjacency[:, None, :] & apart
    return colliders


def _implied(directed: np.ndarray, undirected: np.ndarray, joined: np.ndarray) -> np.ndarray:
    """Which edges u → v, at [v, u], must point this way, or a collider or a cycle would come."""
    apart = ~joined
    np.fill_diagonal(apart, False)
    # w → u, w and v apart: v → u would be a new collider.
    collider = (directed[None, :, :] & apart[:, None, :]).any(axis=2)
    # u → w → v: v → u would close a cycle.
    cycle = (directed[:, None, :] & directed.T[None, :, :]).any(axis=2)
    # u – w → v ← x – u, w and x apart: v → u would turn both to u, a new collider.
    via = directed[:, None, :] & undirected[None, :, :]  # [v, u, w]
    kite = (via[:, :, :, None] & via[:, :, None, :] & apart).any(axis=(2, 3))
    implied: np.ndarray = collider | cycle | kite
    return implied
