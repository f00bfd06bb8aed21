r"""S-VAE and GraphRNN: a DAG as the sequence of its nodes, each with its type and edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear, one_hot

from dagnn.autoencoders.dense import at_last_node, choose, one_hot_types, toss
from dagnn.autoencoders.growing import GrowingDags
from dagnn.autoencoders.gru import gru
from dagnn.autoencoders.heads import mlp, type_terms
from dagnn.datasets.small_dags import SmallDags

__all__ = ["RowByRowDecoder", "SequenceDecoder", "SequenceEncoder"]


class SequenceEncoder(nn.Module):
    r"""A GRU over the nodes in topological order, with :math:`x_v = [\mathrm{type}_v \,\|\,
    \text{bits of edges into } v]`; the graph is the state of its last node."""

    def __init__(self, num_types: int, max_nodes: int, hidden_channels: int) -> None:
        super().__init__()
        self.out_channels = hidden_channels
        self.cell = nn.GRUCell(num_types + max_nodes - 1, hidden_channels)

    def forward(self, graphs: SmallDags) -> Tensor:
        """Graph vectors. ``[B, H]``"""
        rows = _rows(graphs, self.cell.weight_ih.dtype)
        start = rows.new_zeros(len(graphs), self.out_channels)
        return at_last_node(_run(self.cell, _inner(self.cell, rows), start), graphs)


class SequenceDecoder(nn.Module):
    r"""The decoder of S-VAE: a GRU that is fed :math:`h_0` at every step, and from its states
    :math:`s_1, \dots, s_{n-1}` the types and all edge bits of nodes :math:`1, \dots, n-1`."""

    def __init__(self, num_types: int, max_nodes: int, hidden_channels: int) -> None:
        super().__init__()
        self.num_types = num_types
        self.max_nodes = max_nodes
        self.hidden_channels = hidden_channels
        self.cell = nn.GRUCell(hidden_channels, hidden_channels)
        self.type_head = mlp(hidden_channels, 2 * hidden_channels, num_types)
        self.edge_head = mlp(hidden_channels, 4 * hidden_channels, max_nodes - 1)

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""
        states = self._states(h0)
        types, edges = self.type_head(states), self.edge_head(states)
        return type_terms(types, graphs) + _edge_terms(edges, graphs)

    def generate(
        self, h0: Tensor, stochastic: bool, generator: torch.Generator | None
    ) -> SmallDags:
        """A graph for each state."""
        states = self._states(h0)
        growing = GrowingDags(len(h0), self.max_nodes, self.num_types, h0.device)
        for v, state in enumerate(states, 1):
            growing.add_node(v, choose(self.type_head(state), stochastic, generator))
            bits = toss(self.edge_head(state), stochastic, generator)
            growing.add_edges(v, _padded(bits, self.max_nodes))
        return growing.finish()

    def _states(self, h0: Tensor) -> Tensor:
        """``[n - 1, B, H]``"""
        inner = _inner(self.cell, h0).expand(self.max_nodes - 1, -1, -1)
        return _run(self.cell, inner, torch.zeros_like(h0))


class RowByRowDecoder(nn.Module):
    r"""The decoder of GraphRNN: a GRU over nodes, fed with the row of the node before and started
    at :math:`h_0`, whose state gives the type; and a GRU over edges, started at that state and fed
    with the bit before, that gives the bits of the node's edges from nodes 0, 1, … one by one."""

    def __init__(self, num_types: int, max_nodes: int, hidden_channels: int) -> None:
        super().__init__()
        self.num_types = num_types
        self.max_nodes = max_nodes
        self.hidden_channels = hidden_channels
        self.node_cell = nn.GRUCell(num_types + max_nodes - 1, hidden_channels)
        self.edge_cell = nn.GRUCell(1, hidden_channels)
        self.type_head = mlp(hidden_channels, 2 * hidden_channels, num_types)
        self.edge_head = mlp(hidden_channels, 2 * hidden_channels, 1)

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""
        rows = _rows(graphs, h0.dtype)[:-1]
        states = _run(self.node_cell, _inner(self.node_cell, rows), h0)  # [n - 1, B, H]
        before = _signs(graphs.adjacency.transpose(0, 1)[1:]).to(h0.dtype)  # [n - 1, B, n]
        logits = []
        h, fed = states, torch.zeros_like(states[..., :1])
        for u in range(self.max_nodes - 1):
            h = _step(self.edge_cell, _inner(self.edge_cell, fed), h)
            logit = self.edge_head(h).squeeze(-1)  # [n - 1 - u, B]
            logits.append(nn.functional.pad(logit, (0, 0, u, 0)))
            h, fed = h[1:], before[u + 1 :, :, u : u + 1]  # node u + 1 has no further bit
        edges = torch.stack(logits, -1)
        return type_terms(self.type_head(states), graphs) + _edge_terms(edges, graphs)

    def generate(
        self, h0: Tensor, stochastic: bool, generator: torch.Generator | None
    ) -> SmallDags:
        """A graph for each state."""
        size, n = len(h0), self.max_nodes
        growing = GrowingDags(size, n, self.num_types, h0.device)
        row = h0.new_zeros(size, self.num_types + n - 1)
        row[:, 0] = 1
        state = h0
        for v in range(1, n):
            state = _step(self.node_cell, _inner(self.node_cell, row), state)
            types = growing.add_node(v, choose(self.type_head(state), stochastic, generator))
            edge = torch.zeros(size, n, dtype=torch.bool, device=h0.device)
            h, fed = state, h0.new_zeros(size, 1)
            for u in range(v):
                h = _step(self.edge_cell, _inner(self.edge_cell, fed), h)
                edge[:, u] = toss(self.edge_head(h).squeeze(-1), stochastic, generator)
                fed = _signs(edge[:, u : u + 1]).to(h0.dtype)
            growing.add_edges(v, edge)
            bits = growing.adjacency[:, v, :-1]
            row = torch.cat([one_hot(types, self.num_types), bits], -1).to(h0.dtype)
        return growing.finish()


def _rows(graphs: SmallDags, dtype: torch.dtype) -> Tensor:
    """Types and bits of edges from all nodes but the last. ``[n, B, T + n - 1]``"""
    bits = graphs.adjacency.transpose(0, 1)[..., :-1].to(dtype)
    return torch.cat([one_hot_types(graphs, dtype), bits], -1)


def _signs(bits: Tensor) -> Tensor:
    """1 and −1, so that 0 is left for "no bit before"."""
    return 2 * bits.long() - 1


def _padded(bits: Tensor, size: int) -> Tensor:
    return nn.functional.pad(bits, (0, size - bits.size(-1)))


def _inner(cell: nn.GRUCell, x: Tensor) -> Tensor:
    return linear(x, cell.weight_ih, cell.bias_ih)


def _step(cell: nn.GRUCell, inner: Tensor, h: Tensor) -> Tensor:
    return gru(inner, linear(h, cell.weight_hh, cell.bias_hh), h)


def _run(cell: nn.GRUCell, inner: Tensor, h: Tensor) -> Tensor:
    """States of a GRU over ``inner`` ``[k, B, 3H]`` from ``h`` ``[B, H]``. ``[k, B, H]``"""
    states = []
    for now in inner:
        h = _step(cell, now, h)
        states.append(h)
    return torch.stack(states)


def _edge_terms(logits: Tensor, graphs: SmallDags) -> Tensor:
    """Log-probabilities of edges from logits ``[n - 1, B, n - 1]``, ``[v - 1, b, u]``. ``[B]``"""
    true = graphs.adjacency.transpose(0, 1)[1:, :, :-1].to(logits.dtype)
    loss = binary_cross_entropy_with_logits(logits, true, reduction="none")
    place = torch.arange(graphs.max_nodes - 1, device=logits.device)
    asked = place <= place.unsqueeze(-1)  # u < v
    node = graphs.is_node.t()[1:].unsqueeze(-1)
    return -(loss * (asked.unsqueeze(1) & node)).sum((0, 2))
