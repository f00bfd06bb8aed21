"""Graphs in the making."""

from __future__ import annotations

import torch

from dagnn.autoencoders.growing import GrowingDags


def test_outputs_join_loose_ends_and_end_a_graph() -> None:
    growing = GrowingDags(2, 4, 5, torch.device("cpu"))
    no = torch.zeros(2, 4, dtype=torch.bool)
    growing.add_node(1, torch.tensor([2, 3]))
    growing.add_edges(1, no)  # both nodes are loose
    given = growing.add_node(2, torch.tensor([1, 4]))
    assert given.tolist() == [1, 4]
    edge = no.clone()
    edge[:, 1] = True
    edge[:, 3] = True  # from a node that does not exist: ignored
    growing.add_edges(2, edge)
    given = growing.add_node(3, torch.tensor([2, 2]))
    assert given.tolist() == [1, 1]  # the last place is an output
    growing.add_edges(3, ~no)
    graphs = growing.finish().check()
    assert graphs.num_nodes.tolist() == [3, 4]
    assert graphs.types.tolist() == [[0, 2, 1, 0], [0, 3, 4, 1]]
    edges = [[(u, v) for v, u in adjacency.nonzero().tolist()] for adjacency in graphs.adjacency]
    assert edges == [[(0, 2), (1, 2)], [(1, 2), (0, 3), (2, 3)]]
