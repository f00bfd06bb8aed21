"""A PyG transform that stores the levels of a graph, once."""

from __future__ import annotations

from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from dagnn.graph.levels import topological_levels

__all__ = ["AddLevels"]


class AddLevels(BaseTransform):
    r"""Stores every node's level as ``data.level``, and in the reverse DAG as
    ``data.reverse_level``.

    Levels are ordinary node attributes, so they survive PyG's batching as a plain
    concatenation: the levels of a batch are those of its graphs, side by side.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3)
        >>> AddLevels()(data).level
        tensor([0, 1, 1])
    """

    def forward(self, data: Data) -> Data:
        data.level = topological_levels(data.edge_index, data.num_nodes)
        data.reverse_level = topological_levels(data.edge_index.flip(0), data.num_nodes)
        return data
