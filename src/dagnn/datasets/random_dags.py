"""Random DAGs over labelled nodes, many at once, as dense adjacency matrices."""

from __future__ import annotations

from math import comb
from typing import Literal, get_args

import numpy as np

__all__ = ["Order", "random_dags"]

Order = Literal["fixed", "random", "uniform"]


def random_dags(num_nodes: int, count: int, *, order: Order = "fixed", seed: int = 0) -> np.ndarray:
    r"""Draw DAGs.

    Args:
        num_nodes: The number :math:`n` of nodes of each.
        count: The number :math:`G` of graphs.
        order: ``"fixed"``: each edge :math:`u \to v` with :math:`u < v` has probability
            :math:`2 / (n - 1)`, as in bnlearn's ``random.graph``, but at most 1/2, lest all small
            graphs be complete. ``"random"``: the same, in an order of the nodes drawn for each
            graph. ``"uniform"``: every DAG has the same chance.
        seed: Of the generator.

    Returns:
        ``[g, v, u]`` says whether there is an edge from u to v. bool ``[G, n, n]``

    Example:
        >>> random_dags(3, 1, seed=2).astype(int)
        array([[[0, 0, 0],
                [1, 0, 0],
                [1, 1, 0]]])
    """
    if num_nodes < 1 or count < 0:
        raise ValueError(
            f"expected at least 1 node and 0 graphs, got {num_nodes} nodes and {count} graphs"
        )
    if order not in get_args(Order):
        raise ValueError(f"expected an order of {', '.join(get_args(Order))}, got {order!r}")
    generator = np.random.default_rng(seed)
    if order == "uniform":
        edges = _by_layers(num_nodes, count, generator)
    else:
        chance = min(0.5, 2 / max(num_nodes - 1, 1))
        edges = generator.random((count, num_nodes, num_nodes)) < chance
        edges &= np.tri(num_nodes, k=-1, dtype=bool)
    if order == "fixed":
        return edges
    places = np.tile(np.arange(num_nodes), (count, 1))
    node = generator.permuted(places, axis=1)  # [G, n], the node at each place
    graph = np.arange(count)[:, None, None]
    shuffled = np.zeros_like(edges)
    shuffled[graph, node[:, :, None], node[:, None, :]] = edges
    return shuffled


def _by_layers(n: int, count: int, generator: np.random.Generator) -> np.ndarray:
    r"""DAGs that are uniform once their nodes are shuffled, with edges from lower to higher places.

    Take the sources away, then the sources of the rest, and so on: a DAG falls into layers. The
    number of DAGs of :math:`m` nodes with :math:`k` sources, of which :math:`s` come next, is

    .. math::
        a_{m,k} = \binom{m}{k} \sum_s (2^k - 1)^s\, 2^{k (m - k - s)}\, a_{m-k,s}

    since each of the next :math:`s` has a parent among the :math:`k`, and each later node any
    (Robinson; Kuipers and Moffa). So layer sizes are drawn from exact counts, then the edges.
    """
    dags = _count_dags(n)
    layer = np.zeros((count, n), dtype=np.int64)  # of the node at each place
    left = np.full(count, n)
    size = np.zeros(count, dtype=np.int64)  # of the layer just drawn
    for depth in range(n):
        state = left * (n + 1) + size
        for m, k in (divmod(s, n + 1) for s in np.unique(state).tolist()):
            if m == 0:
                continue
            # Each count as a share of the largest: the counts themselves exceed floating point.
            ways = [_ways(k, s, m) * dags[m, s] if s else 0 for s in range(m + 1)]
            share = np.array([way / max(ways) for way in ways])
            which = state == m * (n + 1) + k
            drawn = generator.choice(m + 1, size=int(which.sum()), p=share / share.sum())
            layer[which] = np.where(np.arange(n) >= n - m, depth, layer[which])
            size[which] = drawn
            left[which] = m - drawn
    gap = layer[:, :, None] - layer[:, None, :]
    edges = (generator.random((count, n, n)) < 0.5) & (gap > 0)
    return _give_parents(edges, gap == 1, generator)


def _count_dags(n: int) -> dict[tuple[int, int], int]:
    dags: dict[tuple[int, int], int] = {}
    for m in range(1, n + 1):
        for k in range(1, m + 1):
            rest = m - k
            ways = sum(_ways(k, s, rest) * dags[rest, s] for s in range(1, rest + 1))
            dags[m, k] = comb(m, k) * (ways if rest else 1)
    return dags


def _ways(k: int, s: int, rest: int) -> int:
    """Edges from a layer of k to the rest, of which the next s need one; before the first: one."""
    return (2**k - 1) ** s * 2 ** (k * (rest - s)) if k else 1


def _give_parents(
    edges: np.ndarray, previous: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw the edges from the layer before again, wherever a node has none of them."""
    while True:
        lacking = previous.any(axis=2) & ~(edges & previous).any(axis=2)  # [G, n]
        if not lacking.any():
            return edges
        again = generator.random((int(lacking.sum()), edges.shape[2])) < 0.5
        edges[lacking] = np.where(previous[lacking], again, edges[lacking])
