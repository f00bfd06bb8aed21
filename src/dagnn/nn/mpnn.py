r"""Message-passing networks over the edges of a DAG and their inverses: the paper's baselines, and
a bag of nodes.

The networks follow the recipe of the `Open Graph Benchmark <https://arxiv.org/abs/2005.00687>`_:
inverse edges are added, an edge's type and direction are two bits of edge features, layers are
followed by batch normalization. All models take node features ``[N, C]``, edges ``[2, E]``, edge
types ``[E]`` (0 or 1), the batch vector ``[N]`` and the number of graphs, and give ``[G, C]``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import ASAPooling, GraphConv, SAGPooling, global_add_pool, global_mean_pool

from dagnn.nn.kept_rows import KeptRowsNorm, normalize
from dagnn.nn.mpnn_convs import (
    NUM_KINDS,
    GATLayer,
    TwoWayEdges,
    make_conv,
    sum_messages,
    without_autocast,
)
from dagnn.nn.readout import gated_sum
from dagnn.nn.segments import summand

__all__ = ["GGNN", "MPNN", "BagOfNodes", "PoolingMPNN"]


class MPNN(nn.Module):
    r"""Convolutions with batch normalization, and the mean over the nodes of the last layer.

    With a virtual node, each graph has a vector that is added to its nodes before every layer, and
    after it (but the last) becomes an MLP of itself plus the sum over the nodes.

    Args:
        channels: Width :math:`C`.
        num_layers: The number of layers.
        conv: ``"gcn"``, ``"gin"`` or ``"gat"``; see :mod:`dagnn.nn.mpnn_convs`.
        virtual_node: Whether each graph has one.
        dropout: After every layer.
    """

    def __init__(
        self,
        channels: int,
        num_layers: int = 5,
        conv: str = "gcn",
        *,
        virtual_node: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.out_channels = channels
        self.dropout = dropout
        self.convs = nn.ModuleList(make_conv(conv, channels) for _ in range(num_layers))
        self.norms = nn.ModuleList(KeptRowsNorm(channels) for _ in range(num_layers))
        self.virtual = nn.Parameter(torch.zeros(1, channels)) if virtual_node else None
        updates = num_layers - 1 if virtual_node else 0
        self.virtual_mlps = nn.ModuleList(_virtual_mlp(channels) for _ in range(updates))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_type: Tensor,
        batch: Tensor,
        batch_size: int,
        *,
        has_filler: bool = False,
    ) -> Tensor:
        """One vector per graph. ``[G, C]``

        A filler is the last graph, and of no concern to the others: batch normalization, where
        they would meet, leaves it out.
        """
        kept = batch < batch_size - 1 if has_filler else None
        edges = TwoWayEdges.of(edge_index, edge_type, x.size(0), kept)
        if isinstance(self.convs[0], GATLayer):
            edges = edges.with_loops()
        h = x
        virtual = None if self.virtual is None else self.virtual.expand(batch_size, -1)
        last = len(self.convs) - 1
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if virtual is not None:
                h = h + virtual.index_select(0, batch)
            inputs, h = h, normalize(norm, conv(h, edges), kept)
            if i < last:
                h = h.relu()
                if virtual is not None:
                    total = global_add_pool(summand(inputs), batch, batch_size)
                    total = total.to(virtual.dtype) + virtual
                    virtual = self._update_virtual(i, total, has_filler)
            h = nn.functional.dropout(h, self.dropout, self.training)
        out: Tensor = global_mean_pool(summand(h), batch, batch_size)
        return out.to(h.dtype)

    def _update_virtual(self, layer: int, total: Tensor, has_filler: bool) -> Tensor:
        # Without autocast: sums grow with graphs, and batch normalization sets all others beside a
        # few large ones. In half precision little is left of how those differ, and the gradient of
        # all parameters is more error than gradient.
        with without_autocast(total):
            virtual: Tensor = self.virtual_mlps[layer](total[:-1] if has_filler else total)
        if has_filler:
            virtual = nn.functional.pad(virtual, (0, 0, 0, 1))  # a row of zeros
        return nn.functional.dropout(virtual, self.dropout, self.training)


def _virtual_mlp(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(channels, 2 * channels),
        nn.BatchNorm1d(2 * channels),
        nn.ReLU(),
        nn.Linear(2 * channels, channels),
        nn.BatchNorm1d(channels),
        nn.ReLU(),
    )


class GGNN(nn.Module):
    r"""The gated graph neural network of `Li et al. (2016) <https://arxiv.org/abs/1511.05493>`_:
    a GRU over :math:`T` steps of messages, with a matrix for each kind of edge (type and
    direction), and a gated sum over the nodes.

    .. math::
        h_v^{t} &= \mathrm{GRU}\Bigl(\sum_{u \in \mathcal{N}(v)} W_{\tau(u,v)} h_u^{t-1},\;
        h_v^{t-1}\Bigr), \qquad h_v^0 = x_v \\
        h_{\mathcal{G}} &= \sum_v \sigma(f[h_v^T \| x_v]) \odot \tanh(g[h_v^T \| x_v])

    Their last :math:`\tanh`, around the sum, is left out: over hundreds of nodes it would be
    saturated.

    Args:
        channels: Width :math:`C`.
        num_layers: The number of steps :math:`T`.
    """

    def __init__(self, channels: int, num_layers: int = 5) -> None:
        super().__init__()
        self.out_channels = channels
        self.num_layers = num_layers
        self.lin = nn.Linear(channels, NUM_KINDS * channels)
        self.cell = nn.GRUCell(channels, channels)
        self.gate = nn.Linear(2 * channels, channels)
        self.map = nn.Linear(2 * channels, channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, batch: Tensor, batch_size: int
    ) -> Tensor:
        """One vector per graph. ``[G, C]``"""
        edges = TwoWayEdges.of(edge_index, edge_type, x.size(0))
        sender = edges.source * NUM_KINDS + edges.kind  # a row per node and kind
        h = x
        for _ in range(self.num_layers):
            sent = self.lin(h)
            # Whose gradient is a sum, too.
            message = summand(sent).view(-1, self.out_channels).index_select(0, sender)
            h = self.cell(sum_messages(message, edges.target, h.size(0)).to(sent.dtype), h)
        joined = torch.cat([h, x], dim=-1)
        return gated_sum(self.gate(joined), self.map(joined), batch, batch_size)


class BagOfNodes(nn.Module):
    r"""No messages at all: the readout of :class:`GGNN`, over the nodes as they are. It has few
    parameters and no layers, and says how far the nodes alone lead.

    .. math::
        h_{\mathcal{G}} = \sum_v \sigma(f[x_v]) \odot \tanh(g[x_v])

    Args:
        channels: Width :math:`C`.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.out_channels = channels
        self.gate = nn.Linear(channels, channels)
        self.map = nn.Linear(channels, channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, batch: Tensor, batch_size: int
    ) -> Tensor:
        """One vector per graph; edges are not looked at. ``[G, C]``"""
        return gated_sum(self.gate(x), self.map(x), batch, batch_size)


class PoolingMPNN(nn.Module):
    r"""Convolutions between which nodes are dropped (SAGPool) or merged (ASAP), as in PyG's
    benchmark suite: after every second layer, four fifths of the nodes stay; the means over the
    nodes after each layer are joined and mapped to :math:`C`.

    Args:
        channels: Width :math:`C`.
        num_layers: The number of convolutions.
        pool: ``"sag"`` (`Lee et al., 2019 <https://arxiv.org/abs/1904.08082>`_) or ``"asap"``
            (`Ranjan et al., 2020 <https://arxiv.org/abs/1911.07979>`_).
        ratio: The share of the nodes that stay.
        dropout: On the output.
    """

    def __init__(
        self,
        channels: int,
        num_layers: int = 5,
        pool: str = "sag",
        *,
        ratio: float = 0.8,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        pools = {"sag": SAGPooling, "asap": ASAPooling}
        if pool not in pools:
            raise ValueError(f"expected pool 'sag' or 'asap', got {pool!r}")
        self.out_channels = channels
        self.dropout = dropout
        self.convs = nn.ModuleList(
            GraphConv(channels, channels, aggr="mean") for _ in range(num_layers)
        )
        self.pools = nn.ModuleList(
            pools[pool](channels, ratio) for _ in range((num_layers - 1) // 2)
        )
        self.lin = nn.Linear(num_layers * channels, channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, batch: Tensor, batch_size: int
    ) -> Tensor:
        """One vector per graph. ``[G, C]``"""
        edges = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        h, means = x, []
        for i, conv in enumerate(self.convs):
            h = summand(conv(h, edges).relu())
            means.append(global_mean_pool(h, batch, batch_size))
            if i % 2 == 1 and i < len(self.convs) - 1:
                # Sparse products, which merge nodes, are not there in bfloat16.
                with without_autocast(h):
                    h, edges, _, batch, *_ = self.pools[i // 2](h, edges, None, batch)
        out = self.lin(torch.cat(means, dim=-1)).relu()
        return nn.functional.dropout(out, self.dropout, self.training)
