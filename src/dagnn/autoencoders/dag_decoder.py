r"""The decoder of D-VAE, with the layers of D-VAE or of DAGNN."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dagnn.autoencoders import dense
from dagnn.autoencoders.dag_layer import DagLayer, Offer
from dagnn.autoencoders.dense import choose, one_hot_types, toss
from dagnn.autoencoders.edge_logits import edge_logits
from dagnn.autoencoders.elbo import graph_likelihood
from dagnn.autoencoders.growing import GrowingDags
from dagnn.autoencoders.heads import mlp
from dagnn.datasets.small_dags import INPUT, SmallDags

__all__ = ["DagDecoder"]


class DagDecoder(nn.Module):
    r"""Builds a DAG node by node, and for each node edge by edge from the newest node back.

    Node 0 is the input, with the message :math:`h_0`. For :math:`v = 1, 2, \dots`: the type of
    :math:`v` comes from the state of node :math:`v - 1`; then for :math:`u = v - 1, \dots, 0` the
    edge :math:`(u, v)` from

    .. math::
        p(u \to v) = \sigma\bigl(W_2 \, \mathrm{ReLU}(W_1 [h_u \,\|\, h_{v \mid u}] + b_1) +
        b_2\bigr)

    with :math:`h_{v \mid u}` the state of :math:`v` given its edges from nodes later than
    :math:`u` alone. The output type ends the graph; it is joined to all nodes without successor.

    **All decisions at once.** Given the graph, the states of finished nodes are one DAG
    recurrence, and every :math:`h_{v \mid u}` depends on those of finished nodes alone: all
    :math:`n (n - 1) / 2` of them are one batch. The product with :math:`W_1` splits into one for
    nodes and one for partial states. On the CPU, pairs that share a partial state share its row:
    it changes only where there is an edge, and without edges depends on the type alone.

    Args:
        num_types: The number of node types.
        max_nodes: The largest number of nodes :math:`n`.
        hidden_channels: Width of the states.
        num_layers: The number of layers; decisions see the states of the last.
        edges_see_start: Whether :math:`h_0` is a further input for edges, as in D-VAE's form for
            Bayesian networks.
        types_see_sum: Whether types come from the sum of all states so far, likewise.
        options: ``aggregator`` and ``cell`` of :class:`DagLayer`.
    """

    pair_v: Tensor
    pairs: Tensor
    later: Tensor

    def __init__(
        self,
        num_types: int,
        max_nodes: int,
        hidden_channels: int,
        num_layers: int = 1,
        edges_see_start: bool = False,
        types_see_sum: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.num_types = num_types
        self.max_nodes = max_nodes
        self.hidden_channels = hidden_channels
        self.types_see_sum = types_see_sum
        widths = [num_types, *[hidden_channels] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            DagLayer(width, hidden_channels, max_nodes, num_types, **options) for width in widths
        )
        hidden = hidden_channels
        self.type_head = mlp(hidden, 2 * hidden, num_types)
        self.edge_from = nn.Linear(hidden, 4 * hidden)  # W_1 for h_u, and b_1
        self.edge_to = nn.Linear(hidden, 4 * hidden, bias=False)  # W_1 for h_v
        self.edge_start = (
            nn.Linear(hidden, 4 * hidden, bias=False) if edges_see_start else None
        )  # W_1 for h_0
        self.edge_out = nn.Linear(4 * hidden, 1)
        v, u = torch.tril_indices(max_nodes, max_nodes, -1).unbind()
        place = torch.arange(max_nodes - 1)
        order = torch.argsort(v * max_nodes + (max_nodes - u))  # u from the newest node back
        v, u = v[order], u[order]
        pairs = (v * max_nodes + u).unsqueeze(0)
        self.register_buffer("pair_v", v, persistent=False)  # [P]
        self.register_buffer("pairs", pairs, persistent=False)  # [1, P]
        self.register_buffer("later", place > u.unsqueeze(-1), persistent=False)  # [P, n - 1]

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""
        types = one_hot_types(graphs, h0.dtype)
        # No decision depends on the last node.
        edge, below = graphs.adjacency[:, :-1, :-1].to(h0.dtype), types[:-1]
        offers: list[Offer] = []
        for layer in self._layers:
            below, offer = layer.sweep_and_offer(below, edge, types[:-1], h0)  # [n - 1, B, H]
            offers.append(offer)
        known = below.cumsum(0) if self.types_see_sum else below
        edge_logits = self._edge_logits(h0, below, offers, types, graphs).unsqueeze(1)
        return graph_likelihood(self.type_head(known), edge_logits, graphs, self.pairs)

    def _edge_logits(
        self, h0: Tensor, h: Tensor, offers: list[Offer], types: Tensor, graphs: SmallDags
    ) -> Tensor:
        """Of all edges and non-edges. ``[B, P]``"""
        x = types.transpose(0, 1).index_select(1, self.pair_v).flatten(0, 1)  # [B P, T]
        receivers = self._receivers(x, offers, graphs).view(len(h0), len(self.pair_v), -1)
        senders = self.edge_from(h)  # [n - 1, B, 4H]
        if self.edge_start is not None:
            senders = senders + self.edge_start(h0)
        return edge_logits(receivers, senders, self.edge_out, self.pairs)

    def _receivers(self, x: Tensor, offers: list[Offer], graphs: SmallDags) -> Tensor:
        """The product of W_1 with the partial states of all pairs, whose types are ``x``
        ``[B P, T]``. ``[B P, 4H]``"""
        layers = list(zip(self._layers, offers, strict=True))
        if dense.has_kernels(x):
            messages = [layer.gather_pairs(offer, graphs, self.pairs) for layer, offer in layers]
            return self.edge_to(self._grow(x, [m.flatten(0, 1) for m in messages])[-1])
        into = graphs.adjacency[..., :-1].index_select(1, self.pair_v)  # [B, P, n - 1]
        sets = into & self.later  # the edges that are known at each decision
        mask = sets.to(x.dtype)
        messages = [layer.gather(offer, mask).flatten(0, 1) for layer, offer in layers]  # [B P, H]
        if dense.has_static_shapes(x):
            return self.edge_to(self._grow(x, messages)[-1])
        share = _share(sets, graphs.types.index_select(1, self.pair_v), self.num_types)
        empty = torch.eye(self.num_types, dtype=x.dtype, device=x.device)
        none = x.new_zeros(self.num_types, self.hidden_channels)
        messages = [share.rows(none, message) for message in messages]
        distinct = self._grow(share.rows(empty, x), messages)[-1]  # [R, H]
        return self.edge_to(distinct).index_select(0, share.row)

    @property
    def _layers(self) -> list[DagLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def generate(
        self, h0: Tensor, stochastic: bool, generator: torch.Generator | None
    ) -> SmallDags:
        """A graph for each state."""
        size, n = len(h0), self.max_nodes
        growing = GrowingDags(size, n, self.num_types, h0.device)
        types = h0.new_zeros(n, size, self.num_types)
        types[0, :, INPUT] = 1
        known = [
            Offer(
                h0.new_zeros(size, n, self.hidden_channels),
                None if layer.key is None else h0.new_zeros(size, n),
            )
            for layer in self._layers
        ]
        senders = h0.new_zeros(size, n, 4 * self.hidden_channels)  # W_1 h_u + b_1
        start = 0.0 if self.edge_start is None else self.edge_start(h0)
        total = torch.zeros_like(h0)
        states = self._grow(types[0], [h0] * len(known))
        for v in range(1, n):
            self._publish(states, types[v - 1 : v], v - 1, known)
            senders[:, v - 1] = self.edge_from(states[-1]) + start
            total = total + states[-1]
            logits = self.type_head(total if self.types_see_sum else states[-1])
            types[v] = one_hot(
                growing.add_node(v, choose(logits, stochastic, generator)), self.num_types
            )
            edge = h0.new_zeros(size, 1, n)
            if v == n - 1:  # always an output, whose edges are not decided
                growing.add_edges(v, edge.squeeze(1).bool())
                break
            states = self._grow(types[v], self._messages(known, edge))
            for u in reversed(range(v)):
                hidden = (senders[:, u] + self.edge_to(states[-1])).relu()
                edge[:, 0, u] = toss(self.edge_out(hidden).squeeze(-1), stochastic, generator)
                states = self._grow(types[v], self._messages(known, edge))
            growing.add_edges(v, edge.squeeze(1).bool())
        return growing.finish()

    def _grow(self, types: Tensor, messages: list[Tensor]) -> list[Tensor]:
        """States ``[R, H]`` of all layers, from types ``[R, T]`` and messages ``[R, H]``."""
        states, below = [], types
        for layer, message in zip(self._layers, messages, strict=True):
            below = layer.update(layer.inner(below), message)
            states.append(below)
        return states

    def _messages(self, known: list[Offer], edge: Tensor) -> list[Tensor]:
        return [
            layer.gather(offer, edge).squeeze(1)
            for layer, offer in zip(self._layers, known, strict=True)
        ]

    def _publish(self, states: list[Tensor], types: Tensor, place: int, known: list[Offer]) -> None:
        """Store what a finished node gives to its successors."""
        for layer, state, offer in zip(self._layers, states, known, strict=True):
            own = layer.offer(state[None], types, place)
            offer.value[:, place] = own.value.squeeze(1)
            if own.score is not None and offer.score is not None:
                offer.score[:, place] = own.score.squeeze(1)


class _Share(NamedTuple):
    """Which pairs share a partial state: rows are first that of each type without edges."""

    first: Tensor  # [R - T] flat index of the first pair of each further row
    row: Tensor  # [B P] the row of each pair

    def rows(self, empty: Tensor, by_pair: Tensor) -> Tensor:
        """``[R, …]`` from those of types ``[T, …]`` and of all pairs ``[B P, …]``."""
        return torch.cat([empty, by_pair.index_select(0, self.first)])


def _share(sets: Tensor, types: Tensor, num_types: int) -> _Share:
    """Pairs of one node follow each other, from the newest sender back, so a set that differs
    from the one before is new unless it is empty."""
    differs = sets.any(-1)
    differs[:, 1:] &= (sets[:, 1:] != sets[:, :-1]).any(-1)
    new = differs.flatten()
    row = new.long().cumsum(0) - 1 + num_types
    return _Share(
        new.nonzero().squeeze(-1), torch.where(sets.any(-1).flatten(), row, types.flatten())
    )
