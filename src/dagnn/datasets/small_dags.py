"""A data set of small DAGs as a few dense tensors."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

__all__ = ["INPUT", "OUTPUT", "SmallDags"]

INPUT, OUTPUT = 0, 1  # the types of a graph's first and last node


@dataclass(frozen=True, eq=False)
class SmallDags:
    """DAGs of at most ``n`` typed nodes each, in a topological order, with a score per graph.

    The first node of a graph has type :data:`INPUT`, its last one type :data:`OUTPUT`. Rows
    beyond a graph's nodes are padding, of type 0 and without edges. A batch is of this class too.

    Args:
        types: Node types. int64 ``[G, n]``
        adjacency: ``adjacency[g, v, u]`` says whether there is an edge from ``u`` to ``v``;
            always ``u < v``. bool ``[G, n, n]``
        num_nodes: The number of nodes of each graph. int64 ``[G]``
        score: What is to be predicted of each graph. float64 ``[G]``
        num_types: The number of node types.

    Example:
        >>> import torch
        >>> from dagnn.datasets.architectures import parse_architectures
        >>> graphs = parse_architectures(["[[4], [0, 1], [2, 0, 1]], 0.7"], num_layers=3)
        >>> graphs.types
        tensor([[0, 6, 2, 4, 1]])
        >>> graphs.adjacency[0].nonzero().flip(-1).tolist()
        [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 4]]
    """

    types: Tensor
    adjacency: Tensor
    num_nodes: Tensor
    score: Tensor
    num_types: int

    def __len__(self) -> int:
        return self.types.size(0)

    @property
    def max_nodes(self) -> int:
        return self.types.size(1)

    @property
    def device(self) -> torch.device:
        return self.types.device

    @property
    def is_node(self) -> Tensor:
        """Which rows are nodes, not padding. bool ``[G, n]``"""
        place = torch.arange(self.max_nodes, device=self.device)
        return place < self.num_nodes.unsqueeze(-1)

    def __getitem__(self, index: Tensor | slice) -> SmallDags:
        """The graphs of a slice, or with these indices or at these places of a mask."""
        return self._map(lambda tensor: tensor[index])

    def index_select(self, index: Tensor) -> SmallDags:
        """The graphs with these indices, without waiting for a device. ``[B]``"""
        return self._map(lambda tensor: tensor.index_select(0, index))

    def to(self, device: torch.device | str) -> SmallDags:
        return self._map(lambda tensor: tensor.to(device))

    def split(self, share: float = 0.9, seed: int = 0) -> tuple[SmallDags, SmallDags]:
        """The split of D-VAE: a list shuffled by Python's generator, the first 90 % to train."""
        order = list(range(len(self)))
        random.Random(seed).shuffle(order)
        index = torch.tensor(order, dtype=torch.long, device=self.device)
        size = int(len(self) * share)
        return self.index_select(index[:size]), self.index_select(index[size:])

    def check(self) -> SmallDags:
        """These graphs, if they are what the class describes; a ValueError otherwise."""
        size, n = self.types.shape
        expected: dict[str, tuple[Any, torch.dtype]] = {
            "types": ((size, n), torch.long),
            "adjacency": ((size, n, n), torch.bool),
            "num_nodes": ((size,), torch.long),
            "score": ((size,), torch.float64),
        }
        for name, (shape, dtype) in expected.items():
            tensor = getattr(self, name)
            if tensor.shape != shape or tensor.dtype != dtype:
                raise ValueError(
                    f"expected {name} of shape {list(shape)} and {dtype}, got "
                    f"{list(tensor.shape)} and {tensor.dtype}"
                )
        node = self.is_node
        last = self.num_nodes.unsqueeze(-1) - 1
        problems = {
            f"from 2 to {n} nodes": (self.num_nodes < 2) | (self.num_nodes > n),
            f"node types from 0 to {self.num_types - 1}": (
                (self.types < 0) | (self.types >= self.num_types)
            ).any(-1),
            "edges from earlier to later nodes only": self.adjacency.triu().flatten(1).any(-1),
            "no edges and type 0 at padding": (~node & (self.types != 0)).any(-1)
            | (self.adjacency & ~(node.unsqueeze(-1) & node.unsqueeze(-2))).flatten(1).any(-1),
            f"type {INPUT} (input) at the first node": self.types[:, 0] != INPUT,
            f"type {OUTPUT} (output) at the last node": (
                self.types.gather(1, last.clamp(0, n - 1)).squeeze(-1) != OUTPUT
            ),
            "a finite score": ~self.score.isfinite(),
        }
        for wish, broken in problems.items():
            if bool(broken.any()):
                graph = int(broken.nonzero()[0])
                raise ValueError(f"expected {wish}, got otherwise in graph {graph}")
        return self

    def _map(self, function: Any) -> SmallDags:
        tensors = {
            field.name: function(getattr(self, field.name))
            for field in fields(self)
            if field.name != "num_types"
        }
        return SmallDags(**tensors, num_types=self.num_types)
