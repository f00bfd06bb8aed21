r"""Aggregators :math:`G`: from the states of a node's predecessors to one message.

All of them are called as ``aggregator(query, value, index, edge=None)`` with

* ``query``: the receiving nodes' inputs :math:`x_v = h_v^{\ell-1}`. ``[V, C]``
* ``value``: one predecessor's state :math:`h_u^{\ell}` per edge. ``[S, H]``
* ``index``: the row of ``query`` that each edge points to, ascending. ``[S]``
* ``edge``: what :meth:`~Aggregator.embed_edges` made of the edges. ``[S, …]`` or :obj:`None`

and return messages ``[V, message_channels]``, exactly zero where a node has no predecessor.
None of them depends on the order of the edges of a node (Theorem 2).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from dagnn.nn.segments import segment_product, segment_softmax, segment_sum, summand

__all__ = [
    "Aggregator",
    "Attention",
    "Concat",
    "DotAttention",
    "DynamicAttention",
    "EpsilonSum",
    "GatedEdgeSum",
    "GatedSum",
    "Reduce",
    "make_aggregator",
]


class Aggregator(nn.Module):
    """Base of all aggregators; see the module's docstring for the call."""

    message_channels: int
    uses_edges: bool = False  # whether edge types and features mean anything to it

    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        self.message_channels = hidden_channels

    def embed_edges(self, edge_type: Tensor | None, edge_attr: Tensor | None) -> Tensor | None:
        """What the aggregator needs to know of each edge, computed once for all levels."""
        return None

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must implement forward")


class EdgeAttention(Aggregator):
    r"""Attention whose scores see the edges: :math:`y_{\tau(u,v)}` of equation (9).

    :math:`y` is a trainable embedding of the edge's type, a linear map of the edge's features,
    or, with both given, their sum.
    """

    uses_edges = True

    def __init__(
        self,
        hidden_channels: int,
        edge_types: int | None,
        edge_channels: int | None,
        edge_width: int,
    ) -> None:
        super().__init__(hidden_channels)
        self.edge_embedding = None if edge_types is None else nn.Embedding(edge_types, edge_width)
        self.edge_projection = (
            None if edge_channels is None else nn.Linear(edge_channels, edge_width)
        )

    @property
    def has_edges(self) -> bool:
        return self.edge_embedding is not None or self.edge_projection is not None

    def embed_edges(self, edge_type: Tensor | None, edge_attr: Tensor | None) -> Tensor | None:
        y = None
        if self.edge_embedding is not None:
            y = self.edge_embedding(edge_type)  # [E, edge_width]
        if self.edge_projection is not None:
            projected = self.edge_projection(edge_attr)  # [E, edge_width]
            y = projected if y is None else y + projected
        return y

    def score(self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None) -> Tensor:
        """One score per edge. ``[S]``"""
        raise NotImplementedError(f"{type(self).__name__} must implement score")

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        score = self.score(query, value, index, edge)
        alpha = segment_softmax(score, index, query.size(0))  # [S]
        return segment_sum(alpha.unsqueeze(-1) * value, index, query.size(0))


class Attention(EdgeAttention):
    r"""Additive attention, equations (5), (6) and (9) of the paper:

    .. math::
        m_v = \sum_{u \in \mathcal{P}(v)} \alpha_{vu} h_u^{\ell}, \qquad
        \alpha_{vu} = \operatorname*{softmax}_{u \in \mathcal{P}(v)} \bigl(
        w_1^{\top} h_v^{\ell-1} + w_2^{\top} h_u^{\ell} + w_3^{\top} y_{\tau(u,v)} \bigr)

    The query term :math:`w_1^{\top} h_v^{\ell-1}` is the same for all predecessors of a node, so
    it cancels in the softmax (the paper's own footnote); it is kept for faithfulness, and because
    :math:`w_3` may be tied to :math:`w_1`.

    Args:
        in_channels: Width of the query.
        hidden_channels: Width of the states.
        edge_types: The number of edge types, if edges have types.
        edge_channels: The width of edge features, if edges have features.
        tie_edge_weight: Whether :math:`w_3 = w_1`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        edge_types: int | None = None,
        edge_channels: int | None = None,
        tie_edge_weight: bool = False,
    ) -> None:
        width = in_channels if tie_edge_weight else hidden_channels
        super().__init__(hidden_channels, edge_types, edge_channels, width)
        self.query = nn.Linear(in_channels, 1, bias=False)  # w_1
        self.key = nn.Linear(hidden_channels, 1, bias=False)  # w_2
        self.edge: nn.Linear | None = None  # w_3
        if self.has_edges:
            self.edge = self.query if tie_edge_weight else nn.Linear(width, 1, bias=False)

    def score(self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None) -> Tensor:
        score = self.query(query)[index] + self.key(value)  # [S, 1]
        if self.edge is not None:
            score = score + self.edge(edge)
        return score.squeeze(-1)


class DotAttention(EdgeAttention):
    r"""Attention in dot-product form (the paper's footnote 1), whose query does not cancel:

    .. math::
        \alpha_{vu} = \operatorname*{softmax}_{u \in \mathcal{P}(v)} \bigl(
        \langle W_1 h_v^{\ell-1}, W_2 h_u^{\ell} \rangle + w_3^{\top} y_{\tau(u,v)} \bigr)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        edge_types: int | None = None,
        edge_channels: int | None = None,
    ) -> None:
        super().__init__(hidden_channels, edge_types, edge_channels, hidden_channels)
        self.query = nn.Linear(in_channels, hidden_channels, bias=False)  # W_1
        self.key = nn.Linear(hidden_channels, hidden_channels, bias=False)  # W_2
        self.edge = nn.Linear(hidden_channels, 1, bias=False) if self.has_edges else None  # w_3

    def score(self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None) -> Tensor:
        score = (self.query(query)[index] * self.key(value)).sum(dim=-1)  # [S]
        if self.edge is not None:
            score = score + self.edge(edge).squeeze(-1)
        return score


class DynamicAttention(EdgeAttention):
    r"""Attention in the dynamic form of GATv2, whose query does not cancel:

    .. math::
        \alpha_{vu} = \operatorname*{softmax}_{u \in \mathcal{P}(v)} \bigl( a^{\top}
        \mathrm{LeakyReLU}(W_1 h_v^{\ell-1} + W_2 h_u^{\ell} + W_3 y_{\tau(u,v)}) \bigr)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        edge_types: int | None = None,
        edge_channels: int | None = None,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__(hidden_channels, edge_types, edge_channels, hidden_channels)
        self.query = nn.Linear(in_channels, hidden_channels)  # W_1, with the only bias needed
        self.key = nn.Linear(hidden_channels, hidden_channels, bias=False)  # W_2
        self.edge = (
            nn.Linear(hidden_channels, hidden_channels, bias=False) if self.has_edges else None
        )  # W_3
        self.score_weight = nn.Linear(hidden_channels, 1, bias=False)  # a
        self.activation = nn.LeakyReLU(negative_slope)

    def score(self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None) -> Tensor:
        hidden = self.query(query)[index] + self.key(value)  # [S, H]
        if self.edge is not None:
            hidden = hidden + self.edge(edge)
        return self.score_weight(self.activation(hidden)).squeeze(-1)


class GatedSum(Aggregator):
    r"""The gated sum of D-VAE:

    .. math::
        m_v = \sum_{u \in \mathcal{P}(v)} \sigma(W_g h_u^{\ell} + b_g) \odot (W_m h_u^{\ell})
    """

    def __init__(self, hidden_channels: int, gated_channels: int | None = None) -> None:
        super().__init__(hidden_channels)
        gated_channels = hidden_channels if gated_channels is None else gated_channels
        self.gate = nn.Linear(gated_channels, hidden_channels)
        self.map = nn.Linear(gated_channels, hidden_channels, bias=False)

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        gated = self.gate(value).sigmoid() * self.map(value)  # [S, H]
        return segment_sum(gated, index, query.size(0))


class GatedEdgeSum(GatedSum):
    r"""A gated sum that sees the edges:

    .. math::
        m_v = \sum_{u \in \mathcal{P}(v)} \sigma(W_g z_{uv} + b_g) \odot (W_m z_{uv}), \qquad
        z_{uv} = \bigl[ h_u^{\ell} \,\|\, y_{uv} \bigr]

    where :math:`y_{uv}` is the edge's type, one-hot, and its features, side by side.

    Args:
        hidden_channels: Width of the states and of the message.
        edge_types: The number of edge types, if edges have types.
        edge_channels: The width of edge features, if edges have features.
        gate_states: Whether the states take part; without them :math:`z_{uv} = y_{uv}`, as in
            D-VAE's form for Bayesian networks.
    """

    uses_edges = True

    def __init__(
        self,
        hidden_channels: int,
        edge_types: int | None = None,
        edge_channels: int | None = None,
        gate_states: bool = True,
    ) -> None:
        width = (edge_types or 0) + (edge_channels or 0)
        if width == 0:
            raise ValueError("expected edge_types or edge_channels to gate, got neither")
        super().__init__(hidden_channels, width + hidden_channels if gate_states else width)
        self.edge_types = edge_types
        self.edge_channels = edge_channels
        self.gate_states = gate_states

    def embed_edges(self, edge_type: Tensor | None, edge_attr: Tensor | None) -> Tensor | None:
        parts: list[Tensor] = []
        if self.edge_types is not None:
            assert edge_type is not None, "DAGNN checks that edge_type is there"
            one_hot = nn.functional.one_hot(edge_type, self.edge_types)
            parts.append(one_hot.to(self.gate.weight.dtype))  # [E, edge_types]
        if self.edge_channels is not None:
            assert edge_attr is not None, "DAGNN checks that edge_attr is there"
            parts.append(edge_attr)  # [E, edge_channels]
        return torch.cat(parts, dim=-1)

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        assert edge is not None, "DAGNN embeds the edges"
        z = torch.cat([value, edge], dim=-1) if self.gate_states else edge
        return super().forward(query, z, index)


class Reduce(Aggregator):
    r"""A parameter-free reduction :math:`m_v = \square_{u \in \mathcal{P}(v)} h_u^{\ell}`, with
    :math:`\square` one of ``"sum"``, ``"mean"``, ``"max"``, ``"mul"`` (elementwise product)."""

    def __init__(self, hidden_channels: int, reduce: str) -> None:
        super().__init__(hidden_channels)
        self.reduce = reduce

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        size = query.size(0)
        if self.reduce == "mul":
            return segment_product(value, index, size)
        out = scatter(summand(value), index, dim=0, dim_size=size, reduce=self.reduce)
        return out.to(value.dtype)

    def extra_repr(self) -> str:
        return f"{self.message_channels}, reduce={self.reduce!r}"


class EpsilonSum(Aggregator):
    r"""A sum with GIN's :math:`\epsilon`, injective on multisets for almost every
    :math:`\epsilon` (Theorem 3):

    .. math::
        m_v = (1 + \epsilon) \, P h_v^{\ell-1} + \sum_{u \in \mathcal{P}(v)} h_u^{\ell},
        \qquad m_v = 0 \text{ if } \mathcal{P}(v) = \emptyset

    :math:`\epsilon` is trained; :math:`P` is the identity where the widths agree, and otherwise a
    linear map without bias.
    """

    def __init__(self, in_channels: int, hidden_channels: int, epsilon: float = 0.0) -> None:
        super().__init__(hidden_channels)
        self.initial_epsilon = epsilon
        self.epsilon = nn.Parameter(torch.tensor(float(epsilon)))
        self.project: nn.Module = (
            nn.Identity()
            if in_channels == hidden_channels
            else nn.Linear(in_channels, hidden_channels, bias=False)
        )

    def reset_parameters(self) -> None:
        nn.init.constant_(self.epsilon, self.initial_epsilon)
        if isinstance(self.project, nn.Linear):
            self.project.reset_parameters()

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        size = query.size(0)
        own = (1 + self.epsilon) * self.project(query)  # [V, H]
        occupied = own.new_zeros(size, 1).index_fill(0, index, 1.0)
        return own * occupied + segment_sum(value, index, size)


class Concat(Aggregator):
    r"""The states of up to :obj:`arity` *ordered* predecessors side by side:

    .. math::
        m_v = \bigl[ h_{u_1} \,\|\, \dots \,\|\, h_{u_K} \bigr], \qquad
        u_k \text{ the predecessor of } v \text{ over an edge of type } k

    as recursive neural networks and N-ary Tree-LSTMs have it. A missing predecessor is zero. The
    edge's type is the predecessor's place, so this aggregator needs ``edge_type``.
    """

    uses_edges = True

    def __init__(self, hidden_channels: int, arity: int) -> None:
        super().__init__(arity * hidden_channels)
        self.arity = arity

    def embed_edges(self, edge_type: Tensor | None, edge_attr: Tensor | None) -> Tensor | None:
        return edge_type

    def forward(
        self, query: Tensor, value: Tensor, index: Tensor, edge: Tensor | None = None
    ) -> Tensor:
        assert edge is not None, "DAGNN checks that edge_type is there"
        place = index * self.arity + edge  # [S]
        return segment_sum(value, place, query.size(0) * self.arity).view(query.size(0), -1)

    def extra_repr(self) -> str:
        return f"{self.message_channels // self.arity}, arity={self.arity}"


AGGREGATORS = (
    "attention", "dot_attention", "dynamic_attention", "gated_sum", "gated_edge_sum",
    "sum", "mean", "max", "mul", "epsilon_sum", "concat",
)  # fmt: skip


def make_aggregator(
    name: str,
    in_channels: int,
    hidden_channels: int,
    *,
    edge_types: int | None = None,
    edge_channels: int | None = None,
    tie_edge_weight: bool = False,
) -> Aggregator:
    """An aggregator by its name, one of :data:`AGGREGATORS`."""
    if name not in AGGREGATORS:
        raise ValueError(f"expected aggregator to be one of {', '.join(AGGREGATORS)}, got {name!r}")
    edges: dict[str, Any] = {"edge_types": edge_types, "edge_channels": edge_channels}
    if name == "attention":
        return Attention(in_channels, hidden_channels, **edges, tie_edge_weight=tie_edge_weight)
    if tie_edge_weight:
        raise ValueError(
            f"expected aggregator='attention' with tie_edge_weight=True, got {name!r}; "
            "only additive attention has a w_3 that can be tied to w_1"
        )
    if name == "dot_attention":
        return DotAttention(in_channels, hidden_channels, **edges)
    if name == "dynamic_attention":
        return DynamicAttention(in_channels, hidden_channels, **edges)
    if name == "gated_edge_sum":
        return GatedEdgeSum(hidden_channels, **edges, gate_states=False)
    if name == "gated_sum" and (edge_types is not None or edge_channels is not None):
        return GatedEdgeSum(hidden_channels, **edges)
    if name == "concat":
        if edge_types is None or edge_channels is not None:
            raise ValueError(
                "expected edge_types (the number of ordered predecessors) and no edge_channels "
                f"with aggregator='concat', got {edge_types=} and {edge_channels=}"
            )
        return Concat(hidden_channels, edge_types)
    if edge_types is not None or edge_channels is not None:
        raise ValueError(
            f"expected an aggregator that uses edge types or features, got {name!r}; "
            "choose an attention or gated sum, or leave out edge_types and edge_channels"
        )
    if name == "gated_sum":
        return GatedSum(hidden_channels)
    if name == "epsilon_sum":
        return EpsilonSum(in_channels, hidden_channels)
    return Reduce(hidden_channels, name)
