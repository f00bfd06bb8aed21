"""Theorem 1: levels are a topological batching, and there is none with fewer batches.

A topological batching is a partition of the nodes into ordered batches such that

(i) the batches are disjoint and their union is the node set;
(ii) no path joins two nodes of one batch;
(iii) every batch but the first has a node with a direct predecessor in the batch before.

Read to the letter, (iii) is too weak for the theorem (the last test shows a partition with a batch
too many), since the path that the proof traces back needs it of *every* node. The paper's
procedure gives that, so this is what is tested.
"""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from torch_geometric.data import Data

from dagnn import longest_path_length, topological_levels
from tests.graph.strategies import all_dags, dags, disjoint_union


def paths(adjacency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether a path leads from u to v, and the nodes on the longest path, by matrix powers.

    [G, n, n] -> [G, n, n] and [G]
    """
    reachable = np.zeros_like(adjacency)
    length = np.zeros(len(adjacency), dtype=int)
    power = np.broadcast_to(np.eye(adjacency.shape[1], dtype=bool), adjacency.shape)
    while power.any():  # the powers of a DAG's matrix end in zero
        length += power.any(axis=(1, 2))
        power = power @ adjacency
        reachable |= power
    return reachable, length


@given(dags(max_nodes=20))
def test_levels_are_a_topological_batching(data: Data) -> None:
    levels = topological_levels(data.edge_index, data.num_nodes).tolist()
    graph = nx.DiGraph(data.edge_index.t().tolist())
    graph.add_nodes_from(range(data.num_nodes))
    batches = [{v for v in graph if levels[v] == i} for i in range(max(levels, default=-1) + 1)]

    assert sum(len(batch) for batch in batches) == len(set().union(*batches)) == data.num_nodes
    for batch in batches:
        for v in batch:
            assert not batch & nx.descendants(graph, v)
    for before, batch in pairwise(batches):
        assert batch
        for v in batch:
            assert before & set(graph.predecessors(v))

    longest = len(nx.dag_longest_path(graph, weight=None)) if data.num_nodes else 0
    assert len(batches) == longest == longest_path_length(data.edge_index, data.num_nodes)


@pytest.mark.parametrize(("n", "count"), [(1, 1), (2, 3), (3, 25), (4, 543), (5, 29281)])
def test_all_small_dags(n: int, count: int) -> None:
    adjacency = all_dags(n)
    assert len(adjacency) == count
    batch = torch.arange(count).repeat_interleave(n)
    edge_index = disjoint_union(adjacency)
    levels = topological_levels(edge_index, count * n).view(count, n).numpy()
    reachable, longest = paths(adjacency)

    # (i) holds because each node has one level; no batch is skipped:
    used = (levels[:, :, None] == np.arange(n)).any(axis=1)  # [G, n] whether batch i has nodes
    assert (levels.min(axis=1) == 0).all()
    assert (used.sum(axis=1) == levels.max(axis=1) + 1).all()
    # (ii)
    assert not (reachable & (levels[:, :, None] == levels[:, None, :])).any()
    # (iii), of every node
    step = adjacency & (levels[:, :, None] + 1 == levels[:, None, :])
    assert (step.any(axis=1) == (levels > 0)).all()
    # The number of batches is the number of nodes on the longest path ...
    assert (levels.max(axis=1) + 1 == longest).all()
    assert (longest_path_length(edge_index, batch=batch).numpy() == longest).all()
    # ... and the first batch is the set of sources (the paper's remark).
    assert ((levels == 0) == ~adjacency.any(axis=1)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_no_fewer_batches(n: int) -> None:
    adjacency = all_dags(n)
    edge = np.flatnonzero(~np.eye(n, dtype=bool))
    bit = 1 << np.arange(len(edge))
    graphs = (adjacency.reshape(-1, n * n)[:, edge] * bit).sum(axis=1)  # edges as bits, [G]
    levels = topological_levels(disjoint_union(adjacency), len(adjacency) * n)
    needed = levels.view(-1, n).amax(1).numpy() + 1
    for k in range(1, n + 1):
        choices = np.stack(np.meshgrid(*[np.arange(k)] * n), axis=-1).reshape(-1, n)  # [k^n, n]
        falls = choices[:, :, None] >= choices[:, None, :]  # edges against the order, [k^n, n, n]
        forbidden = (falls.reshape(-1, n * n)[:, edge] * bit).sum(axis=1)
        possible = np.zeros(len(graphs), dtype=bool)
        for mask in np.unique(forbidden):
            possible |= graphs & mask == 0
        assert (possible == (needed <= k)).all()


def test_property_iii_to_the_letter_is_too_weak() -> None:
    """{a}, {b, c}, {d} meets (i) to (iii) as they are worded, but the longest path has 2 nodes."""
    a, b, c, d = range(4)
    graph = nx.DiGraph([(a, b), (c, d)])
    batches = [{a}, {b, c}, {d}]
    assert sorted(v for batch in batches for v in batch) == [a, b, c, d]
    assert not any(batch & nx.descendants(graph, v) for batch in batches for v in batch)
    for before, batch in pairwise(batches):
        assert any(before & set(graph.predecessors(v)) for v in batch)
    edge_index = torch.tensor(list(graph.edges)).t()
    assert len(batches) == 3
    assert longest_path_length(edge_index) == 2
