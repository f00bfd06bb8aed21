"""Structures made to meet constraints, and read off graphs that need not be networks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from dagnn.bayesnet.constraints import Constraints
from dagnn.datasets.bayesian_networks import valid_bayesian_networks
from dagnn.datasets.small_dags import SmallDags

__all__ = ["Structures", "make_feasible", "read_structures"]


class Structures(NamedTuple):
    """Structures of networks.

    Args:
        adjacency: ``[g, v, u]`` for an edge u → v. bool ``[G, n, n]``
        rank: The place of each variable in a topological order. int64 ``[G, n]``
    """

    adjacency: np.ndarray
    rank: np.ndarray


def read_structures(graphs: SmallDags) -> tuple[Structures, np.ndarray]:
    """Structures of graphs as a decoder makes them, and which of the graphs are networks as they
    stand. bool ``[G]``

    Where they are not, the first node of each variable counts, and a variable that is lacking comes
    last, without edges.
    """
    types, edge = graphs.types.cpu(), graphs.adjacency.cpu()
    n = graphs.num_types - 2
    is_variable = types[:, :, None] == torch.arange(2, n + 2)  # [G, N, n]
    place, there = is_variable.int().argmax(1), is_variable.any(1)  # [G, n]
    graph = torch.arange(len(graphs))[:, None, None]
    adjacency = edge[graph, place[:, :, None], place[:, None, :]]
    adjacency = adjacency & there[:, :, None] & there[:, None, :]
    order = torch.where(there, place, graphs.max_nodes + torch.arange(n))
    rank = order.argsort(1).argsort(1)
    valid = valid_bayesian_networks(graphs).cpu()
    return Structures(adjacency.numpy(), rank.numpy()), valid.numpy()


def make_feasible(
    structures: Structures, constraints: Constraints, generator: np.random.Generator
) -> np.ndarray:
    """The structures that are nearest in spirit and meet constraints. bool ``[G, n, n]``

    Variables keep their order as far as required edges allow. Edges against it and forbidden ones
    are left out, required ones put in; of too many parents some are drawn.
    """
    adjacency, rank = structures
    required, forbidden = constraints.required, constraints.forbidden
    if required.any():
        rank = _respect(rank, required)
    adjacency = adjacency & (rank[:, :, None] > rank[:, None, :]) & ~forbidden | required
    if (adjacency.sum(axis=2) > constraints.max_parents).any():
        chance = np.where(adjacency, generator.random(adjacency.shape) + required, -1.0)
        standing = (-chance).argsort(axis=2).argsort(axis=2)
        adjacency &= standing < constraints.max_parents
    return np.asarray(adjacency)


def _respect(rank: np.ndarray, required: np.ndarray) -> np.ndarray:
    """Ranks in which parents come first: always the first variable in the old order whose required
    parents are all taken."""
    count, n = rank.shape
    taken = np.zeros((count, n), dtype=bool)
    new = np.zeros_like(rank)
    graph = np.arange(count)
    for place in range(n):
        ready = ~taken & ~(required & ~taken[:, None, :]).any(axis=2)
        v = np.where(ready, rank, n).argmin(axis=1)
        new[graph, v] = place
        taken[graph, v] = True
    return new
