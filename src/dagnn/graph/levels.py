r"""Topological batching (Section 2.2 of the paper): which nodes can be computed together.

The *level* of a node is the number of nodes on the longest path that ends there, minus one:

.. math::
    \mathrm{level}(v) =
    \max\bigl(\{0\} \cup \{\mathrm{level}(u) + 1 \mid (u, v) \in \mathcal{E}\}\bigr)

The nodes of level :math:`i` are the paper's batch :math:`\mathcal{B}_i`. By Theorem 1 no smaller
number of ordered batches exists. A batch of graphs is one disconnected graph: nothing changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from dagnn.graph.checks import (
    check_batch,
    check_edge_form,
    check_edge_index,
    check_edge_values,
    check_same_device,
    infer_num_nodes,
)

__all__ = ["CycleError", "longest_path_length", "sources", "targets", "topological_levels"]


class CycleError(ValueError):
    """A directed cycle (or self-loop) where a DAG was expected; :attr:`cycle` lists its nodes."""

    # The message comes first and alone is enough: so are exceptions rebuilt when they are pickled
    # or cross from the worker of a data loader.
    def __init__(self, message: str, cycle: Sequence[Hashable] = ()) -> None:
        super().__init__(message)
        self.cycle: list[Any] = list(cycle)

    @classmethod
    def of(cls, cycle: Sequence[Hashable]) -> CycleError:
        """The error for a cycle's nodes, in the order of its edges."""
        shown = cycle if len(cycle) <= 12 else [*cycle[:11], "…", cycle[-1]]
        path = " -> ".join(str(node) for node in [*shown, cycle[0]])
        kind = "self-loop" if len(cycle) == 1 else f"cycle of {len(cycle)} nodes"
        return cls(
            f"expected a directed acyclic graph, got a {kind}: {path}. "
            "Remove or reverse one of these edges.",
            cycle,
        )


def topological_levels(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The level of every node, in :math:`O(|\mathcal{V}| + |\mathcal{E}|)` time.

    Args:
        edge_index: Edges :math:`(u, v)` as columns. ``[2, E]``, ``torch.long``.
        num_nodes: The number of nodes; by default the largest index plus one.

    Returns:
        Levels. ``[N]``, ``torch.long``, on the device of :obj:`edge_index` (the sort itself runs
        on the CPU: levels are computed once per graph and stored, not once per step).

    Raises:
        CycleError: If the graph has a cycle; the error names its nodes.

    Example:
        >>> import torch
        >>> topological_levels(torch.tensor([[0, 1, 0, 2], [1, 3, 2, 3]]))
        tensor([0, 1, 1, 2])
    """
    check_edge_form(edge_index, num_nodes)
    num_nodes = infer_num_nodes(edge_index, num_nodes)
    levels: Tensor = torch.ops.dagnn.topological_levels(edge_index, num_nodes)
    return levels


@torch.library.custom_op("dagnn::topological_levels", mutates_args=())
def _topological_levels(edge_index: Tensor, num_nodes: int) -> Tensor:
    # An operator of its own, so that torch.compile and torch.export see one opaque node.
    here = edge_index.detach().cpu()
    check_edge_values(here, num_nodes)  # compiled code would write to any place it is told
    edges = here.numpy()
    source, target = np.ascontiguousarray(edges[0]), np.ascontiguousarray(edges[1])
    # Half the bytes are half the cache misses, which is where the time goes in large graphs.
    small = max(num_nodes, len(source)) < 2**31 - 1
    index = np.empty(0, dtype=np.int32 if small else np.int64)
    levels, visited = _kahn(source, target, num_nodes, index)
    if visited < num_nodes:
        raise CycleError.of(_find_cycle(source, target, levels))
    return torch.from_numpy(levels).to(edge_index.device)


@_topological_levels.register_fake
def _(edge_index: Tensor, num_nodes: int) -> Tensor:
    return edge_index.new_empty(num_nodes)


@numba.njit(cache=True, nogil=True)
def _kahn(
    source: np.ndarray, target: np.ndarray, num_nodes: int, index: np.ndarray
) -> tuple[np.ndarray, int]:  # pragma: no cover - compiled
    """Kahn's algorithm; a node that is never reached (it is on or behind a cycle) keeps -1.
    All tables have the type of :obj:`index`."""
    num_edges = source.shape[0]
    start = np.zeros(num_nodes + 1, dtype=index.dtype)  # successor lists by counting sort
    ordered = True  # whether the nodes' own order is a topological one, as in syntax trees
    for e in range(num_edges):
        start[source[e] + 1] += 1
        ordered &= source[e] < target[e]
    for v in range(num_nodes):
        start[v + 1] += start[v]
    successor = np.empty(num_edges, dtype=index.dtype)
    fill = start[:-1].copy()
    for e in range(num_edges):
        u = source[e]
        successor[fill[u]] = target[e]
        fill[u] += 1

    if ordered:  # no queue is needed
        levels = np.zeros(num_nodes, dtype=np.int64)
        for u in range(num_nodes):
            above = levels[u] + 1
            for i in range(start[u], start[u + 1]):
                v = successor[i]
                if levels[v] < above:
                    levels[v] = above
        return levels, num_nodes

    waiting = np.zeros(num_nodes, dtype=index.dtype)  # predecessors not visited yet
    for e in range(num_edges):
        waiting[target[e]] += 1
    levels = np.full(num_nodes, -1, dtype=np.int64)
    queue = np.empty(num_nodes, dtype=index.dtype)
    head = 0
    tail = 0
    for v in range(num_nodes):
        if waiting[v] == 0:
            levels[v] = 0
            queue[tail] = v
            tail += 1
    while head < tail:
        u = queue[head]
        head += 1
        for i in range(start[u], start[u + 1]):
            v = successor[i]
            waiting[v] -= 1
            if waiting[v] == 0:
                # The queue is sorted by level, so the last predecessor is one of the highest.
                levels[v] = levels[u] + 1
                queue[tail] = v
                tail += 1
    return levels, tail


def _find_cycle(source: np.ndarray, target: np.ndarray, levels: np.ndarray) -> list[int]:
    """Walk backwards through unvisited nodes: each has an unvisited predecessor."""
    open_edge = (levels[source] < 0) & (levels[target] < 0)
    predecessor = np.full(levels.shape[0], -1, dtype=np.int64)
    predecessor[target[open_edge]] = source[open_edge]
    seen: dict[int, int] = {}
    walk: list[int] = []
    node = int(np.flatnonzero(levels < 0)[0])
    while node not in seen:
        seen[node] = len(walk)
        walk.append(node)
        node = int(predecessor[node])
    cycle = walk[seen[node] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def sources(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The nodes without predecessors, :math:`\mathcal{S}`, in ascending order. ``[S]``

    Example:
        >>> import torch
        >>> sources(torch.tensor([[0, 1, 4], [1, 2, 2]]))
        tensor([0, 3, 4])
    """
    return _without(edge_index, num_nodes, end=1)


def targets(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The nodes without successors, :math:`\mathcal{T}`, in ascending order. ``[T]``

    Example:
        >>> import torch
        >>> targets(torch.tensor([[0, 1, 4], [1, 2, 2]]))
        tensor([2, 3])
    """
    return _without(edge_index, num_nodes, end=0)


def _without(edge_index: Tensor, num_nodes: int | None, end: int) -> Tensor:
    check_edge_index(edge_index, num_nodes)
    num_nodes = infer_num_nodes(edge_index, num_nodes)
    lonely = torch.ones(num_nodes, dtype=torch.bool, device=edge_index.device)
    lonely[edge_index[end]] = False
    return lonely.nonzero().view(-1)


def longest_path_length(
    edge_index: Tensor,
    num_nodes: int | None = None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
) -> Tensor:
    r"""The number of *nodes* on the longest path, which is the number of levels (Theorem 1).

    (The number of edges on that path is one less; an empty graph has length zero.)

    Args:
        edge_index: ``[2, E]``.
        num_nodes: The number of nodes; by default the largest index plus one.
        batch: The graph of every node, ascending. ``[N]``. By default all nodes are one graph.
        batch_size: The number of graphs; by default the largest entry of :obj:`batch` plus one.

    Returns:
        A scalar tensor, or ``[B]`` with :obj:`batch`.

    Example:
        >>> import torch
        >>> edges = torch.tensor([[0, 1, 3], [1, 2, 4]])
        >>> longest_path_length(edges)
        tensor(3)
        >>> longest_path_length(edges, batch=torch.tensor([0, 0, 0, 1, 1]))
        tensor([3, 2])
    """
    if batch is not None:
        num_nodes = len(batch) if num_nodes is None else num_nodes
        batch_size = check_batch(batch, num_nodes, batch_size)
        check_same_device(edge_index=edge_index, batch=batch)
    levels = topological_levels(edge_index, num_nodes)
    if batch is None:
        return levels.max() + 1 if levels.numel() else levels.new_zeros(())
    length = levels.new_zeros(batch_size or 0)
    return length.scatter_reduce(0, batch, levels + 1, reduce="amax")
