"""Encoders: from DAGs to vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dagnn.autoencoders.dag_layer import DagLayer, sweep_both
from dagnn.autoencoders.dead_units import JoinedLinear
from dagnn.autoencoders.dense import at_last_node, flip, one_hot_types, sum_inner
from dagnn.datasets.small_dags import SmallDags

__all__ = ["ConvolutionEncoder", "DAGNNEncoder", "DVAEEncoder"]


class DAGNNEncoder(nn.Module):
    r"""The DAGNN encoder: :math:`L` layers, joined at the output node.

    .. math::
        h_{\mathcal{G}} = W \operatorname*{max}_{v \in \mathcal{T}}
        \bigl( x_v \,\|\, h_v^1 \,\|\, \dots \,\|\, h_v^L \bigr) + b

    The only target of these graphs is the output node. In reverse, likewise with the input node;
    with ``pool="all"`` over all nodes.

    Args:
        num_types: The number of node types.
        max_nodes: The largest number of nodes.
        hidden_channels: Width of the states.
        num_layers: The number of layers :math:`L`.
        bidirectional: Whether to process the reverse DAG too, with parameters of its own.
        pool: Nodes of the readout, ``"targets"`` or ``"all"``.
        options: ``aggregator`` and ``cell`` of :class:`DagLayer`.
    """

    def __init__(
        self,
        num_types: int,
        max_nodes: int,
        hidden_channels: int,
        num_layers: int = 2,
        bidirectional: bool = False,
        pool: str = "targets",
        **options: Any,
    ) -> None:
        super().__init__()
        if pool not in ("targets", "all"):
            raise ValueError(f"expected pool 'targets' or 'all', got {pool!r}")
        if num_layers < 1:
            raise ValueError(f"expected at least one layer, got num_layers={num_layers}")
        self.pool = pool
        self.out_channels = hidden_channels
        widths = [num_types, *[hidden_channels] * (num_layers - 1)]

        def stack() -> nn.ModuleList:
            return nn.ModuleList(
                DagLayer(width, hidden_channels, max_nodes, num_types, **options)
                for width in widths
            )

        self.layers = stack()
        self.reverse_layers = stack() if bidirectional else None
        joined = [num_types, *[hidden_channels] * num_layers]
        self.lin = JoinedLinear(joined * (2 if bidirectional else 1), hidden_channels)

    def forward(self, graphs: SmallDags) -> Tensor:
        """Graph vectors. ``[B, H]``"""
        x = one_hot_types(graphs, self.lin.weight.dtype)
        edge = graphs.adjacency.to(x.dtype)
        if self.reverse_layers is None:
            states = [x]
            for layer in self.layers:
                assert isinstance(layer, DagLayer)
                states.append(layer.sweep(states[-1], edge, x))
            pooled = self._pool(states, graphs, False)
        else:
            there, back = _both_ways(self.layers, self.reverse_layers, x, edge)
            directions = self._pool(there, graphs, False), self._pool(back, graphs, True)
            pooled = torch.cat(directions, -1)
        out: Tensor = self.lin(pooled)
        return out

    def _pool(self, states: list[Tensor], graphs: SmallDags, reverse: bool) -> Tensor:
        joined = torch.cat(states, -1)  # [n, B, T + L H]
        if self.pool == "targets":
            # In reverse, the input node is the last to be reached.
            return joined[-1] if reverse else at_last_node(joined, graphs)
        node = graphs.is_node.t().unsqueeze(-1)
        return joined.masked_fill(~(node.flip(0) if reverse else node), -torch.inf).amax(0)


class DVAEEncoder(nn.Module):
    r"""The encoder of D-VAE: one layer of gated sums, the graph is the state of its output node;
    with both directions, :math:`W [h_t \,\|\, \tilde h_s] + b`, joined with the input node's.

    With ``by_type``, its form for Bayesian networks, gates see the types of predecessors alone,
    and the graph is the sum of the states of its inner nodes.
    """

    def __init__(
        self,
        num_types: int,
        max_nodes: int,
        hidden_channels: int,
        bidirectional: bool = False,
        by_type: bool = False,
    ) -> None:
        super().__init__()
        self.by_type = by_type
        self.out_channels = hidden_channels
        aggregator = "type_sum" if by_type else "gated_sum"
        sizes = num_types, hidden_channels, max_nodes, num_types
        self.layer = DagLayer(*sizes, aggregator)
        self.reverse_layer = DagLayer(*sizes, aggregator) if bidirectional else None
        self.lin = nn.Linear(2 * hidden_channels, hidden_channels) if bidirectional else None

    def forward(self, graphs: SmallDags) -> Tensor:
        """Graph vectors. ``[B, H]``"""
        x = one_hot_types(graphs, next(self.parameters()).dtype)
        edge = graphs.adjacency.to(x.dtype)
        if self.reverse_layer is None:
            return self._pool(self.layer.sweep(x, edge, x), graphs)
        assert self.lin is not None
        both = x, x.flip(0)
        h, back = sweep_both((self.layer, self.reverse_layer), both, _with_flipped(edge), both)
        reverse = sum_inner(back.flip(0), graphs) if self.by_type else back[-1]
        out: Tensor = self.lin(torch.cat([self._pool(h, graphs), reverse], -1))
        return out

    def _pool(self, h: Tensor, graphs: SmallDags) -> Tensor:
        return sum_inner(h, graphs) if self.by_type else at_last_node(h, graphs)


class ConvolutionEncoder(nn.Module):
    r"""Graph convolutions over predecessors and the node itself, summed over all nodes but the
    input and the output:

    .. math::
        h_v^{\ell} = \mathrm{ReLU}\Bigl( \sum_{u \in \mathcal{P}(v) \cup \{v\}}
        \frac{W^{\ell} h_u^{\ell-1}}{\sqrt{(\mathrm{outdeg}(u) + 1)(\mathrm{indeg}(v) + 1)}} +
        b^{\ell} \Bigr)

    With ``as_published``, as D-VAE's code has it: from the second layer on, nodes come one after
    the other, and predecessors send the states that they have in that very layer already, so that
    a layer reaches along whole paths, as a recurrence does; and a node itself has the weight
    :math:`1 / (\mathrm{indeg}(v) + 1)`.
    """

    def __init__(
        self, num_types: int, hidden_channels: int, num_layers: int = 3, as_published: bool = False
    ) -> None:
        super().__init__()
        self.out_channels = hidden_channels
        self.as_published = as_published
        widths = [num_types, *[hidden_channels] * (num_layers - 1)]
        self.layers = nn.ModuleList(nn.Linear(width, hidden_channels) for width in widths)

    def forward(self, graphs: SmallDags) -> Tensor:
        """Graph vectors. ``[B, H]``"""
        dtype = next(self.parameters()).dtype
        h = one_hot_types(graphs, dtype).transpose(0, 1)  # [B, n, T]
        with_self = graphs.adjacency.to(dtype)
        with_self.diagonal(dim1=1, dim2=2).fill_(1)
        received, sent = (with_self.sum(d, keepdim=True) for d in (2, 1))
        edge = with_self * (received * sent).rsqrt()  # [B, n, n]
        if self.as_published:
            edge.diagonal(dim1=1, dim2=2).copy_(received.squeeze(-1).reciprocal())
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Linear)
            if self.as_published and depth > 0:
                h = _one_after_the_other(layer, edge, h)
            else:
                h = layer(torch.bmm(edge, h)).relu()
        return sum_inner(h.transpose(0, 1), graphs)


def _one_after_the_other(layer: nn.Linear, edge: Tensor, h: Tensor) -> Tensor:
    """A convolution in which predecessors have their new states already. ``[B, n, H]``"""
    nodes = list(h.unbind(1))
    for v in range(len(nodes)):
        # Later nodes send nothing; the node itself still has its old state.
        seen = torch.stack(nodes[: v + 1], 1)
        nodes[v] = layer(torch.bmm(edge[:, v : v + 1, : v + 1], seen).squeeze(1)).relu()
    return torch.stack(nodes, 1)


def _both_ways(
    layers: nn.ModuleList, reverse_layers: nn.ModuleList, x: Tensor, edge: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """The input and the states of every layer, for DAGs and their reverses. ``[n, B, …]`` each"""
    below = types = x, x.flip(0)
    edges = _with_flipped(edge)
    there, back = [below[0]], [below[1]]
    for layer, reverse in zip(layers, reverse_layers, strict=True):
        assert isinstance(layer, DagLayer)
        assert isinstance(reverse, DagLayer)
        below = sweep_both((layer, reverse), below, edges, types)
        there.append(below[0])
        back.append(below[1])
    return there, back


def _with_flipped(edge: Tensor) -> Tensor:
    """The masks of DAGs and of their reverses. ``[2, B, n, n]``"""
    return torch.stack([edge, flip(edge)])
