"""Convolutions over edges and their inverses, with the edge's type and direction as features."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import scatter

from dagnn.nn.kept_rows import KeptRowsNorm, normalize
from dagnn.nn.segments import summand

__all__ = [
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "TwoWayEdges",
    "make_conv",
    "sum_messages",
    "without_autocast",
]

NUM_KINDS = 4  # of edges: two types, two directions


class TwoWayEdges(NamedTuple):
    """A batch's edges, each followed (in the second half) by its inverse."""

    source: Tensor  # [2E]
    target: Tensor  # [2E]
    kind: Tensor  # [2E] 2 * type + direction
    bits: Tensor  # [2E, 2] type and direction, as features
    degree: Tensor  # [N] the number of incoming edges (as many as outgoing ones) plus one
    kept: Tensor | None  # [N] whether batch normalization sees a node; None: all of them

    @classmethod
    def of(
        cls, edge_index: Tensor, edge_type: Tensor, num_nodes: int, kept: Tensor | None = None
    ) -> TwoWayEdges:
        """From edges ``[2, E]`` of types 0 and 1, ``[E]``."""
        ends = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        kind = 2 * edge_type.long()
        kind = torch.cat([kind, kind + 1])
        degree = torch.ones(num_nodes, device=ends.device)
        degree.index_add_(0, ends[1], degree.new_ones(1).expand(ends.size(1)))
        bits = torch.stack([kind // 2, kind % 2], dim=1).to(degree.dtype)
        return cls(ends[0], ends[1], kind, bits, degree, kept)

    def with_loops(self) -> TwoWayEdges:
        """Then an edge from each node to itself, whose bits are the mean over the node's incoming
        edges. Kinds are of the others alone."""
        num_nodes = len(self.degree)
        node = torch.arange(num_nodes, device=self.source.device)
        mean = sum_messages(self.bits, self.target, num_nodes)
        mean = mean / (self.degree - 1).clamp(min=1).unsqueeze(-1)
        return self._replace(
            source=torch.cat([self.source, node]),
            target=torch.cat([self.target, node]),
            bits=torch.cat([self.bits, mean]),
        )


def sum_messages(message: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """What each node receives. ``[N, C]`` from ``[2E, C]`` and ``[2E]``"""
    out: Tensor = scatter(summand(message), target, dim=0, dim_size=num_nodes, reduce="sum")
    return out.to(message.dtype)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """In which operations on a tensor keep its type; some devices have no other way."""
    kind = x.device.type
    has_it = torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if has_it else nullcontext()


class EdgeMessages(nn.Module):
    r"""Sums of :math:`\mathrm{ReLU}(h_u + W e_{uv} + b)` over a node's neighbours, weighted or not;
    :math:`e_{uv}` are the two bits of the edge."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(2, channels)

    def forward(self, h: Tensor, edges: TwoWayEdges, weight: Tensor | None = None) -> Tensor:
        # The bias is added to the nodes, since there are fewer of them than edges.
        sent = (h + self.lin.bias).index_select(0, edges.source)
        message = torch.addmm(sent, edges.bits.to(sent.dtype), self.lin.weight.t()).relu()
        if weight is not None:
            message = message * weight.to(message.dtype).unsqueeze(-1)
        return sum_messages(message, edges.target, h.size(0))


class GCNLayer(nn.Module):
    r"""The graph convolution of the Open Graph Benchmark, with edge features:

    .. math::
        h'_v = \sum_{u \in \mathcal{N}(v)} \frac{1}{\sqrt{d_u d_v}}
        \mathrm{ReLU}(W h_u + e_{uv}) + \frac{1}{d_v} \mathrm{ReLU}(W h_v + r)

    with :math:`d` the degree plus one and :math:`r` a trainable vector.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, channels)
        self.root = nn.Embedding(1, channels)
        self.messages = EdgeMessages(channels)

    def forward(self, h: Tensor, edges: TwoWayEdges) -> Tensor:
        h = self.lin(h)
        scale = edges.degree.rsqrt()
        weight = scale.index_select(0, edges.source) * scale.index_select(0, edges.target)
        own = (h + self.root.weight).relu() / edges.degree.unsqueeze(-1)
        return self.messages(h, edges, weight) + own


class GINLayer(nn.Module):
    r"""The graph isomorphism layer of the Open Graph Benchmark, with edge features:

    .. math::
        h'_v = \mathrm{MLP}\Bigl((1 + \epsilon) h_v + \sum_{u \in \mathcal{N}(v)}
        \mathrm{ReLU}(h_u + e_{uv})\Bigr)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.messages = EdgeMessages(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 2 * channels),
            KeptRowsNorm(2 * channels),
            nn.ReLU(),
            nn.Linear(2 * channels, channels),
        )

    def forward(self, h: Tensor, edges: TwoWayEdges) -> Tensor:
        first, norm, relu, last = self.mlp
        h = first((1 + self.eps) * h + self.messages(h, edges))
        out: Tensor = last(relu(normalize(norm, h, edges.kept)))
        return out


class GATLayer(nn.Module):
    """PyG's :class:`torch_geometric.nn.GATConv` with four heads side by side and edge features,
    over edges :meth:`TwoWayEdges.with_loops`."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"expected channels divisible by {heads} heads, got {channels}")
        # PyG would look for loops among the edges first, in every layer, and wait for their number.
        self.conv = GATConv(
            channels, channels // heads, heads=heads, edge_dim=2, add_self_loops=False
        )

    def forward(self, h: Tensor, edges: TwoWayEdges) -> Tensor:
        ends = torch.stack([edges.source, edges.target])
        out: Tensor = self.conv(h, ends, edges.bits.to(h.dtype))
        return out


LAYERS: dict[str, type[GCNLayer] | type[GINLayer] | type[GATLayer]] = {
    "gcn": GCNLayer,
    "gin": GINLayer,
    "gat": GATLayer,
}


def make_conv(name: str, channels: int) -> nn.Module:
    """A layer by its name, one of ``"gcn"``, ``"gin"`` and ``"gat"``."""
    if name not in LAYERS:
        raise ValueError(f"expected a convolution of {', '.join(LAYERS)}, got {name!r}")
    return LAYERS[name](channels)
