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
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    edges = (
        draw(st.lists(st.sampled_from(pairs), max_size=3 * n, unique=not duplicates))
        if pairs
        else []
    )
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
