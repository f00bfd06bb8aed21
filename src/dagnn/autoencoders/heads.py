"""Parts that several decoders share: a small network, and the terms of a likelihood."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dagnn.datasets.small_dags import SmallDags

__all__ = ["mlp", "type_terms"]


def mlp(in_channels: int, hidden_channels: int, out_channels: int) -> nn.Sequential:
    """Two linear maps and a ReLU between them."""
    return nn.Sequential(
        nn.Linear(in_channels, hidden_channels),
        nn.ReLU(),
        nn.Linear(hidden_channels, out_channels),
    )


def type_terms(logits: Tensor, graphs: SmallDags) -> Tensor:
    """Log-probabilities of types from logits of nodes 1, 2, … ``[n - 1, B, T]``. ``[B]``"""
    true = graphs.types.t()[1:]
    loss = cross_entropy(logits.flatten(0, 1), true.flatten(), reduction="none").view(true.shape)
    return -(loss * graphs.is_node.t()[1:]).sum(0)
