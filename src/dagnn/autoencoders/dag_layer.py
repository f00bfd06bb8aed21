r"""One layer of the DAG recurrence over a dense batch of small DAGs.

The same recurrence as :class:`dagnn.DAGNN` (the tests compare them), for graphs of at most ten or
so nodes: all graphs of a batch are walked node by node, with masks in place of edge lists, so that
shapes do not depend on the graphs. States are node-major, ``[n, B, H]``: a node's are contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from dagnn.autoencoders.attention_sweep import BLOCKED, attention_gru_sweep
from dagnn.autoencoders.dense import has_kernels
from dagnn.autoencoders.gated_sweep import gated_gru_sweep
from dagnn.autoencoders.gru import gru
from dagnn.nn.cells import LinearCell

__all__ = ["AGGREGATORS", "CELLS", "DagLayer", "Offer"]

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
        sent = num_types if aggregator == "type_sum" else hidden_channels + max_nodes
        self.key = self.gate = self.map = None
        if aggregator == "attention":
            self.key = nn.Linear(sent, 1, bias=False)
        else:
            self.gate = nn.Linear(sent, hidden_channels)
            self.map = nn.Linear(sent, hidden_channels, bias=False)

    def inner(self, x: Tensor) -> Tensor:
        """The input's part of the cell, for all nodes at once. ``[…, C]`` to ``[…, 3H or H]``"""
        if isinstance(self.cell, nn.GRUCell):
            return linear(x, self.cell.weight_ih, self.cell.bias_ih)
        out: Tensor = self.cell.input(x)
        return out

    def update(self, inner: Tensor, message: Tensor) -> Tensor:
        """States from :meth:`inner` and messages. ``[…, H]``"""
        if isinstance(self.cell, nn.GRUCell):
            return gru(inner, linear(message, self.cell.weight_hh, self.cell.bias_hh), message)
        out: Tensor = inner + self.cell.message(message)
        return out

    def offer(self, h: Tensor, types: Tensor, first: int = 0) -> Offer:
        """What nodes give to their successors.

        Args:
            h: Their states. ``[k, B, H]``
            types: Their types, one-hot. ``[k, B, T]``
            first: The place of the first of them in the graph.
        """
        places = slice(first, first + len(h))
        if self.key is not None:
            own, by_place = self._split(self.key.weight, places)
            score = h @ own.squeeze(0) + by_place.t()  # [k, B]
            return Offer(h.transpose(0, 1), score.t())
        assert self.gate is not None
        assert self.map is not None
        if self.aggregator == "type_sum":
            value = self.gate(types).sigmoid() * self.map(types)
        else:
            gate, gate_place = self._split(self.gate.weight, places)
            map_, map_place = self._split(self.map.weight, places)
            gated = linear(h, gate, self.gate.bias) + gate_place.t().unsqueeze(1)
            value = gated.sigmoid() * (linear(h, map_) + map_place.t().unsqueeze(1))
        return Offer(value.transpose(0, 1), None)

    def gather(self, offer: Offer, edge: Tensor) -> Tensor:
        """Messages over the edges of a mask ``[B, P, n]`` of ones and zeros. ``[B, P, H]``"""
        if offer.score is None:
            return torch.bmm(edge, offer.value)
        score = offer.score.unsqueeze(1) + BLOCKED * (1 - edge)
        return torch.bmm(torch.softmax(score, -1) * edge, offer.value)

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
        inner = self.inner(x)
        if first is None:
            first = x.new_zeros(x.size(1), self.hidden_channels)
        if self.aggregator == "type_sum":
            message = self.gather(self.offer(types, types), edge).transpose(0, 1)
            return self.update(inner, torch.cat([first.unsqueeze(0), message[1:]]))
        if self.key is not None and isinstance(self.cell, nn.GRUCell):
            own, by_place = self._split(self.key.weight, slice(0, len(x)))
            place = by_place.squeeze(0).flip(0) if reverse else by_place.squeeze(0)
            cell = self.cell
            return attention_gru_sweep(
                inner, edge, place, first, cell.weight_hh, cell.bias_hh, own.squeeze(0)
            )
        if self.gate is not None and isinstance(self.cell, nn.GRUCell) and has_kernels(inner):
            pair = self._pair(len(x), reverse)
            return gated_gru_sweep(
                inner, edge, first, self.cell.weight_hh, self.cell.bias_hh, *pair
            )
        return self._plain_sweep(inner, edge, types, first, reverse)

    def _pair(self, nodes: int, reverse: bool) -> tuple[Tensor, Tensor]:
        """Gate and map as one product: its weight ``[2H, H]``, and what each place adds
        ``[n, 2H]``."""
        assert self.gate is not None
        assert self.map is not None
        gate, gate_place = self._split(self.gate.weight, slice(0, nodes))
        map_, map_place = self._split(self.map.weight, slice(0, nodes))
        places = torch.cat([gate_place.t() + self.gate.bias, map_place.t()], 1)
        return torch.cat([gate, map_]), places.flip(0) if reverse else places

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

    def _split(self, weight: Tensor, places: slice) -> tuple[Tensor, Tensor]:
        """The columns of a weight for states ``[out, H]``, and those for places ``[out, k]``."""
        hidden = self.hidden_channels
        return weight[:, :hidden], weight[:, hidden:][:, places]

    def extra_repr(self) -> str:
        return f"aggregator={self.aggregator!r}"
