r"""One layer of the DAG recurrence over a dense batch of small DAGs.

The same recurrence as :class:`dagnn.DAGNN` (the tests compare them), for graphs of at most ten or
so nodes: all graphs of a batch are walked node by node, with masks in place of edge lists, so that
shapes do not depend on the graphs. States are node-major, ``[n, B, H]``: a node's are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, linear

from dagnn.autoencoders.attention_sweep import (
    BLOCKED,
    attention_gru_sweep,
    fused_attention_gru_sweep,
)
from dagnn.autoencoders.dead_units import JoinedLinear
from dagnn.autoencoders.dense import has_kernels, kernels
from dagnn.autoencoders.gated_sweep import gated_gru_sweep
from dagnn.autoencoders.gru import gru_update
from dagnn.datasets.small_dags import SmallDags
from dagnn.nn.cells import LinearCell

__all__ = ["AGGREGATORS", "CELLS", "DagLayer", "Offer", "sweep_both"]

AGGREGATORS = ("attention", "gated_sum", "type_sum")
CELLS = ("gru", "linear")


class Offer(NamedTuple):
    """What nodes give to a successor: vectors to add up, and for attention their scores."""

    value: Tensor  # [B, n, H]
    score: Tensor | None  # [B, n]


class DagLayer(nn.Module):
    r"""A layer :math:`h_v = F(x_v, m_v)` with one of the messages

    .. math::
        m_v &= \sum_{u \in \mathcal{P}(v)}
        \operatorname*{softmax}_{u \in \mathcal{P}(v)}(w^{\top} z_u) \, h_u
        && \text{attention} \\
        m_v &= \sum_{u \in \mathcal{P}(v)} \sigma(W_g z_u + b_g) \odot (W_m z_u)
        && \text{gated_sum} \\
        m_v &= \sum_{u \in \mathcal{P}(v)} \sigma(W_g t_u + b_g) \odot (W_m t_u)
        && \text{type_sum}

    where :math:`z_u = [h_u \,\|\, \mathrm{id}_u]` is a state and its place, and :math:`t_u` a
    node's type, both one-hot. The query of DAGNN's attention cancels in the softmax and has no
    weight here.

    Args:
        in_channels: Width of the input :math:`x_v`.
        hidden_channels: Width :math:`H` of the states.
        max_nodes: The largest number of nodes :math:`n`.
        num_types: The number of node types.
        aggregator: One of :data:`AGGREGATORS`.
        cell: One of :data:`CELLS`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        max_nodes: int,
        num_types: int,
        aggregator: str = "attention",
        cell: str = "gru",
    ) -> None:
        super().__init__()
        if aggregator not in AGGREGATORS:
            raise ValueError(
                f"expected aggregator to be one of {', '.join(AGGREGATORS)}, got {aggregator!r}"
            )
        if cell not in CELLS:
            raise ValueError(f"expected cell to be one of {', '.join(CELLS)}, got {cell!r}")
        self.hidden_channels = hidden_channels
        self.max_nodes = max_nodes
        self.aggregator = aggregator
        self.cell: nn.GRUCell | LinearCell = (
            nn.GRUCell(in_channels, hidden_channels)
            if cell == "gru"
            else LinearCell(in_channels, hidden_channels, hidden_channels)
        )
        sent = [num_types] if aggregator == "type_sum" else [hidden_channels, max_nodes]
        self.key = self.gate = self.map = None
        if aggregator == "attention":
            self.key = JoinedLinear(sent, 1, bias=False)
        else:
            self.gate = JoinedLinear(sent, hidden_channels)
            self.map = JoinedLinear(sent, hidden_channels, bias=False)

    def inner(self, x: Tensor) -> Tensor:
        """The input's part of the cell, for all nodes at once. ``[…, C]`` to ``[…, 3H or H]``"""
        if isinstance(self.cell, nn.GRUCell):
            return linear(x, self.cell.weight_ih, self.cell.bias_ih)
        out: Tensor = self.cell.input(x)
        return out

    def update(self, inner: Tensor, message: Tensor) -> Tensor:
        """States from :meth:`inner` and messages. ``[…, H]``"""
        if isinstance(self.cell, nn.GRUCell):
            return gru_update(inner, message, self.cell.weight_hh, self.cell.bias_hh)
        out: Tensor = inner + self.cell.message(message)
        return out

    def offer(self, h: Tensor, types: Tensor, first: int = 0) -> Offer:
        """What nodes give to their successors.

        Args:
            h: Their states. ``[k, B, H]``
            types: Their types, one-hot. ``[k, B, T]``
            first: The place of the first of them in the graph.
        """
        if self.key is not None:
            own, by_place = self._split(self.key.weight, len(h), first)
            score = h @ own.squeeze(0) + by_place.t()  # [k, B]
            return Offer(h.transpose(0, 1), score.t())
        assert self.gate is not None
        assert self.map is not None
        if self.aggregator == "type_sum":
            value = self.gate(types).sigmoid() * self.map(types)
        else:
            gate, gate_place = self._split(self.gate.weight, len(h), first)
            map_, map_place = self._split(self.map.weight, len(h), first)
            gated = linear(h, gate, self.gate.bias) + gate_place.t().unsqueeze(1)
            value = gated.sigmoid() * (linear(h, map_) + map_place.t().unsqueeze(1))
        return Offer(value.transpose(0, 1), None)

    def gather(self, offer: Offer, edge: Tensor) -> Tensor:
        """Messages over the edges of a mask ``[B, P, n]`` of ones and zeros. ``[B, P, H]``"""
        if offer.score is None:
            return torch.bmm(edge, offer.value)
        score = offer.score.unsqueeze(1) + BLOCKED * (1 - edge)
        return torch.bmm(torch.softmax(score, -1) * edge, offer.value)

    def gather_pairs(self, offer: Offer, graphs: SmallDags, pairs: Tensor) -> Tensor:
        """Messages to the receivers of pairs ``v * n + u``, over their edges from nodes later than
        ``u``, by kernels of our own. ``[B, P, H]``

        Args:
            offer: Of all nodes but the last.
            graphs: The graphs.
            pairs: ``[1, P]``
        """
        score = None if offer.score is None else offer.score.t()
        weight: Tensor = _FusedPairWeights.apply(score, graphs.adjacency, pairs)
        return torch.bmm(weight, offer.value)

    def sweep(
        self,
        x: Tensor,
        edge: Tensor,
        types: Tensor,
        first: Tensor | None = None,
        reverse: bool = False,
    ) -> Tensor:
        """States of all nodes, in the order of the DAG. ``[n, B, H]``

        Args:
            x: Inputs. ``[n, B, C]``
            edge: ``edge[b, v, u]`` is 1 for an edge from ``u`` to ``v > u``. ``[B, n, n]``
            types: Types, one-hot. ``[n, B, T]``
            first: The message of node 0; by default zero. ``[B, H]``
            reverse: Whether nodes are numbered from the graph's last place down; then they are
                all :obj:`max_nodes`, otherwise the first ``n``.
        """
        return self._sweep(x, edge, types, first, reverse)[0]

    def sweep_and_offer(
        self, x: Tensor, edge: Tensor, types: Tensor, first: Tensor
    ) -> tuple[Tensor, Offer]:
        """The states, and what nodes give to their successors, as :meth:`sweep` and
        :meth:`offer`."""
        h, known = self._sweep(x, edge, types, first, False)
        return h, self.offer(h, types) if known is None else known()

    def _sweep(
        self, x: Tensor, edge: Tensor, types: Tensor, first: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Callable[[], Offer] | None]:
        """The states, and what nodes give to their successors where the way to them told it."""
        inner = self.inner(x)
        if self.has_fused_sweep and has_kernels(inner):
            start = None if first is None else first.unsqueeze(0)
            weights = [weight.unsqueeze(0) for weight in self.recurrent(len(x), reverse)]
            swept = self.fused_sweep(inner.unsqueeze(0), edge.unsqueeze(0), start, weights)
            h, sent = (tensor.squeeze(0) for tensor in swept)
            if self.key is not None:
                return h, lambda: Offer(h.transpose(0, 1), sent.t())
            return h, lambda: Offer(glu(sent).transpose(0, 1), None)
        if first is None:
            first = x.new_zeros(x.size(1), self.hidden_channels)
        if self.aggregator == "type_sum":
            offer = self.offer(types, types)
            message = self.gather(offer, edge).transpose(0, 1)
            return self.update(inner, torch.cat([first.unsqueeze(0), message[1:]])), lambda: offer
        if self.key is not None and isinstance(self.cell, nn.GRUCell):
            h, score = attention_gru_sweep(inner, edge, first, *self.recurrent(len(x), reverse))
            return h, lambda: Offer(h.transpose(0, 1), score.t())
        return self._plain_sweep(inner, edge, types, first, reverse), None

    @property
    def has_fused_sweep(self) -> bool:
        """Whether there is a :meth:`fused_sweep` of it."""
        return isinstance(self.cell, nn.GRUCell) and self.aggregator != "type_sum"

    def fused_sweep(
        self, inner: Tensor, edge: Tensor, first: Tensor | None, weights: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """States, and scores or map and gate, by kernels of our own and for several sides: those of
        :meth:`inner`, and of :meth:`recurrent` of a layer each. ``[S, n, B, …]``"""
        sweep = gated_gru_sweep if self.key is None else fused_attention_gru_sweep
        return sweep(inner, edge, first, *weights)

    def recurrent(self, nodes: int, reverse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the sweep of a GRU takes: its weight ``[3H, H]`` and bias ``[3H]``; then key ``[H]``
        and scores of places ``[n]``, or else the weight of map and gate as one product ``[2H, H]``
        and what each place adds ``[n, 2H]``."""
        assert isinstance(self.cell, nn.GRUCell)
        of_cell = self.cell.weight_hh, self.cell.bias_hh
        if self.key is not None:
            own, by_place = (part.squeeze(0) for part in self._split(self.key.weight, nodes))
            return *of_cell, own, by_place.flip(0) if reverse else by_place
        assert self.gate is not None
        assert self.map is not None
        gate, gate_place = self._split(self.gate.weight, nodes)
        map_, map_place = self._split(self.map.weight, nodes)
        places = torch.cat([map_place.t(), gate_place.t() + self.gate.bias], 1)
        return *of_cell, torch.cat([map_, gate]), places.flip(0) if reverse else places

    def _plain_sweep(
        self, inner: Tensor, edge: Tensor, types: Tensor, first: Tensor, reverse: bool
    ) -> Tensor:
        states = [self.update(inner[0], first)]
        values: list[Tensor] = []
        scores: list[Tensor] = []
        for v in range(1, len(inner)):
            place = self.max_nodes - v if reverse else v - 1
            sent = self.offer(states[-1][None], types[v - 1 : v], place)
            values.append(sent.value)
            if sent.score is not None:
                scores.append(sent.score)
            offer = Offer(torch.cat(values, 1), torch.cat(scores, 1) if scores else None)
            message = self.gather(offer, edge[:, v : v + 1, :v]).squeeze(1)
            states.append(self.update(inner[v], message))
        return torch.stack(states)

    def _split(self, weight: Tensor, nodes: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """The columns of a weight for states ``[out, H]``, and those for places ``[out, k]``."""
        # One split: the gradient of each slice would be a copy of the whole.
        rest = self.max_nodes - first - nodes
        own, _, places, _ = weight.split([self.hidden_channels, first, nodes, rest], 1)
        return own, places

    def extra_repr(self) -> str:
        return f"aggregator={self.aggregator!r}"


def sweep_both(
    layers: tuple[DagLayer, DagLayer],
    x: tuple[Tensor, Tensor],
    edge: Tensor,
    types: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """States of DAGs, and of their reverses by another layer. ``[n, B, H]`` each

    Args:
        layers: Both layers.
        x: Inputs; of the reverse, from the last place down. ``[n, B, C]`` each
        edge: As of :meth:`DagLayer.sweep`, of both. ``[2, B, n, n]``
        types: Types, one-hot. ``[n, B, T]`` each
    """
    ways = list(zip(layers, x, (False, True), strict=True))
    if layers[0].has_fused_sweep and has_kernels(edge):
        inner = torch.stack([layer.inner(own) for layer, own, _ in ways])
        weights = zip(*(layer.recurrent(len(own), way) for layer, own, way in ways), strict=True)
        h, _ = layers[0].fused_sweep(inner, edge, None, [torch.stack(both) for both in weights])
        there, back = h.unbind()
        return there, back
    there, back = (
        layer.sweep(own, mask, kind, reverse=way)
        for (layer, own, way), mask, kind in zip(ways, edge, types, strict=True)
    )
    return there, back


class _FusedPairWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor | None, adjacency: Tensor, pairs: Tensor) -> Tensor:
        score = None if score is None else score.contiguous()
        weight: Tensor = kernels("small_dags").pair_weights(score, adjacency, pairs)
        ctx.save_for_backward(weight)
        return weight

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return kernels("small_dags").pair_weights_backward(weight, grad), None, None
