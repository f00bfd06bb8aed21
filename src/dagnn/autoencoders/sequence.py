r"""S-VAE and GraphRNN: a DAG as the sequence of its nodes, each with its type and edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from dagnn.autoencoders.dense import at_last_node, choose, node_rows, toss
from dagnn.autoencoders.elbo import graph_likelihood
from dagnn.autoencoders.growing import GrowingDags
from dagnn.autoencoders.gru import gru_update
from dagnn.autoencoders.gru_chain import gru_chain
from dagnn.autoencoders.heads import mlp
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
        rows = node_rows(graphs, self.cell.weight_ih.dtype)
        return at_last_node(_run(self.cell, _inner(self.cell, rows)), graphs)


class SequenceDecoder(nn.Module):
    r"""The decoder of S-VAE: a GRU that is fed :math:`h_0` at every step, and from its states
    :math:`s_1, \dots, s_{n-1}` the types and all edge bits of nodes :math:`1, \dots, n-1`."""

    pairs: Tensor

    def __init__(self, num_types: int, max_nodes: int, hidden_channels: int) -> None:
        super().__init__()
        self.num_types = num_types
        self.max_nodes = max_nodes
        self.hidden_channels = hidden_channels
        self.cell = nn.GRUCell(hidden_channels, hidden_channels)
        self.type_head = mlp(hidden_channels, 2 * hidden_channels, num_types)
        self.edge_head = mlp(hidden_channels, 4 * hidden_channels, max_nodes - 1)
        place = torch.arange(max_nodes)
        pairs = place[1:, None] * max_nodes + place[:-1]  # [n - 1, n - 1]
        self.register_buffer("pairs", pairs, persistent=False)

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""
        states = self._states(h0)
        types, edges = self.type_head(states), self.edge_head(states)
        return graph_likelihood(types, edges.transpose(0, 1), graphs, self.pairs)

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
        return _run(self.cell, inner)


class RowByRowDecoder(nn.Module):
    r"""The decoder of GraphRNN: a GRU over nodes, fed with the row of the node before and started
    at :math:`h_0`, whose state gives the type; and a GRU over edges, started at that state and fed
    with the bit before, that gives the bits of the node's edges from nodes 0, 1, … one by one.

    Given the graph, the GRU over edges walks all nodes together: in step :math:`u` those after
    :math:`u`, which ask for the edge from it.
    """

    pairs: Tensor
    before: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, num_types: int, max_nodes: int, hidden_channels: int) -> None:
        super().__init__()
        self.num_types = num_types
        self.max_nodes = max_nodes
        self.hidden_channels = hidden_channels
        self.node_cell = nn.GRUCell(num_types + max_nodes - 1, hidden_channels)
        self.edge_cell = nn.GRUCell(1, hidden_channels)
        self.type_head = mlp(hidden_channels, 2 * hidden_channels, num_types)
        self.edge_head = mlp(hidden_channels, 2 * hidden_channels, 1)
        u, v = torch.triu_indices(max_nodes - 1, max_nodes, 1)  # step by step, [P]
        asks_more = u > 0
        before = v * max_nodes + (u - 1).clamp(min=0)
        self.register_buffer("pairs", (v * max_nodes + u).unsqueeze(0), persistent=False)  # [1, P]
        self.register_buffer("before", before, persistent=False)  # [P] the pair before, if any
        # From a bit to what is fed: 1 and -1, so that 0 is left for "no bit before".
        self.register_buffer("scale", 2.0 * asks_more.unsqueeze(-1), persistent=False)  # [P, 1]
        self.register_buffer("shift", -1.0 * asks_more.unsqueeze(-1), persistent=False)

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""
        n, size = self.max_nodes, len(h0)
        rows = node_rows(graphs, h0.dtype)[:-1]
        states = _run(self.node_cell, _inner(self.node_cell, rows), h0)  # [n - 1, B, H]
        bits = graphs.adjacency.flatten(1).t().index_select(0, self.before)  # [P, B]
        fed = torch.addcmul(self.shift, bits.to(h0.dtype), self.scale).view(-1, 1)
        sizes = [later * size for later in range(n - 1, 0, -1)]
        inner = _inner(self.edge_cell, fed)
        asking = gru_chain(self.edge_cell, inner, states.flatten(0, 1), sizes)  # [P B, H]
        edges = self.edge_head(asking).view(-1, size).t().unsqueeze(1)  # [B, 1, P]
        return graph_likelihood(self.type_head(states), edges, graphs, self.pairs)

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


def _signs(bits: Tensor) -> Tensor:
    """1 and −1, so that 0 is left for "no bit before"."""
    return 2 * bits.long() - 1


def _padded(bits: Tensor, size: int) -> Tensor:
    return nn.functional.pad(bits, (0, size - bits.size(-1)))


def _inner(cell: nn.GRUCell, x: Tensor) -> Tensor:
    return linear(x, cell.weight_ih, cell.bias_ih)


def _step(cell: nn.GRUCell, inner: Tensor, h: Tensor) -> Tensor:
    return gru_update(inner, h, cell.weight_hh, cell.bias_hh)


def _run(cell: nn.GRUCell, inner: Tensor, h: Tensor | None = None) -> Tensor:
    """States of a GRU over ``inner`` ``[k, B, 3H]`` from ``h`` ``[B, H]``, by default zero.
    ``[k, B, H]``"""
    steps, size, _ = inner.shape
    return gru_chain(cell, inner.flatten(0, 1), h, [size] * steps).view(steps, size, -1)
