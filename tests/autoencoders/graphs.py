"""Random small DAGs for tests."""

from __future__ import annotations

import torch

from dagnn.datasets.small_dags import INPUT, OUTPUT, SmallDags


def random_dags(
    size: int, max_nodes: int = 6, num_types: int = 5, seed: int = 0, fixed: bool = False
) -> SmallDags:
    """Graphs of 3 to ``max_nodes`` nodes, in which only the input has no predecessor and only the
    output no successor; with ``fixed`` all of full size."""
    generator = torch.Generator().manual_seed(seed)
    shape = size, max_nodes, max_nodes
    types = torch.randint(2, num_types, (size, max_nodes), generator=generator)
    adjacency = (torch.rand(shape, generator=generator) < 0.4).tril(-1)
    num_nodes = torch.randint(3, max_nodes + 1, (size,), generator=generator)
    if fixed:
        num_nodes[:] = max_nodes
    for g, count in enumerate(num_nodes.tolist()):
        types[g, 0], types[g, count - 1], types[g, count:] = INPUT, OUTPUT, 0
        adjacency[g, count:] = False
        adjacency[g, 1:count, 0] |= ~adjacency[g, 1:count].any(-1)
        loose = ~adjacency[g, :, : count - 1].any(0)
        adjacency[g, count - 1, : count - 1] |= loose
    score = torch.randn(size, generator=generator, dtype=torch.double)
    return SmallDags(types, adjacency, num_nodes, score, num_types).check()


def cut(graphs: SmallDags, g: int) -> SmallDags:
    """One graph, without padding."""
    n = int(graphs.num_nodes[g])
    one = graphs[g : g + 1]
    return SmallDags(
        one.types[:, :n], one.adjacency[:, :n, :n], one.num_nodes, one.score, graphs.num_types
    )
