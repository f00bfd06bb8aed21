"""Random DAGs for hypothesis, and all small DAGs."""

from functools import cache
from itertools import permutations

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data


@st.composite
def dags(draw: st.DrawFn, max_nodes: int = 12, duplicates: bool = True) -> Data:
    """A DAG with shuffled labels and edges; isolated nodes, no nodes and repeated edges occur."""
    n = draw(st.integers(0, max_nodes))
    reach = draw(st.integers(1, max(n, 1)))  # short edges make deep graphs, long ones flat graphs
    edges = []
    for v in range(1, n):
        steps = st.integers(1, min(v, reach))
        edges += [(v - k, v) for k in draw(st.lists(steps, max_size=3, unique=not duplicates))]
    edges = draw(st.permutations(edges))
    label = draw(st.permutations(range(n)))
    edge_index = torch.tensor([[label[u], label[v]] for u, v in edges], dtype=torch.long)
    return Data(edge_index=edge_index.view(-1, 2).t().contiguous(), num_nodes=n)


@cache
def all_dags(n: int) -> np.ndarray:
    """The adjacency matrices of all labelled DAGs of n nodes. [G, n, n]"""
    upper = np.triu_indices(n, 1)
    subsets = np.arange(1 << len(upper[0]))[:, None] >> np.arange(len(upper[0])) & 1  # [2^k, k]
    codes = [np.zeros(0, dtype=np.int64)]
    for order in permutations(range(n)):
        u, v = (np.array(order, dtype=np.int64)[end] for end in upper)
        codes.append((subsets << (u * n + v)).sum(1))
    bits = np.unique(np.concatenate(codes))[:, None] >> np.arange(n * n) & 1
    return bits.astype(bool).reshape(len(bits), n, n)


def disjoint_union(adjacency: np.ndarray) -> Tensor:
    """The edge_index of graphs of the same size side by side."""
    graph, u, v = np.nonzero(adjacency)
    return torch.from_numpy(np.stack([u, v]) + graph * adjacency.shape[1])
