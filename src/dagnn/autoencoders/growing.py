"""Graphs in the making, all of a batch at once."""

from __future__ import annotations

import torch
from torch import Tensor

from dagnn.datasets.small_dags import INPUT, OUTPUT, SmallDags

__all__ = ["GrowingDags"]


class GrowingDags:
    """A batch of DAGs to which nodes are added until each has its output node.

    The output node is joined to every node without successor. The last place is an output, whatever
    was asked for. What is added to a finished graph is ignored.
    """

    def __init__(self, size: int, max_nodes: int, num_types: int, device: torch.device) -> None:
        self.num_types = num_types
        self.types = torch.zeros(size, max_nodes, dtype=torch.long, device=device)
        self.types[:, 0] = INPUT
        shape = size, max_nodes, max_nodes
        self.adjacency = torch.zeros(shape, dtype=torch.bool, device=device)
        self.num_nodes = torch.ones(size, dtype=torch.long, device=device)
        self.growing = torch.ones(size, dtype=torch.bool, device=device)

    def add_node(self, v: int, types: Tensor) -> Tensor:
        """Add node :obj:`v` of types ``[B]``, and return the types that were really given."""
        if v == self.types.size(1) - 1:
            types = torch.full_like(types, OUTPUT)
        self.types[:, v] = torch.where(self.growing, types, 0)
        self.num_nodes += self.growing
        return types

    def add_edges(self, v: int, edge: Tensor) -> None:
        """Add edges from nodes ``u`` with ``edge[b, u]`` to node :obj:`v`. bool ``[B, n]``"""
        is_output = self.types[:, v] == OUTPUT
        place = torch.arange(edge.size(1), device=edge.device)
        loose = ~self.adjacency.any(1) & (place < v)  # without successor
        edge = torch.where(is_output.unsqueeze(-1), loose, edge & (place < v))
        self.adjacency[:, v] = edge & self.growing.unsqueeze(-1)
        self.growing &= ~is_output

    def finish(self) -> SmallDags:
        score = torch.zeros(len(self.types), dtype=torch.float64, device=self.types.device)
        return SmallDags(self.types, self.adjacency, self.num_nodes, score, self.num_types)
