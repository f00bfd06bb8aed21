r"""DeepGMG: message passing on the graph so far before every decision."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, logsigmoid, one_hot

from dagnn.autoencoders import dense
from dagnn.autoencoders.attention_sweep import BLOCKED
from dagnn.autoencoders.dense import choose, one_hot_types, toss
from dagnn.autoencoders.growing import GrowingDags
from dagnn.autoencoders.gru import gru
from dagnn.autoencoders.heads import mlp, type_terms
from dagnn.datasets.small_dags import OUTPUT, SmallDags

__all__ = ["DeepGMGDecoder", "DeepGMGEncoder"]

ROUNDS = 3


class MessagePassing(nn.Module):
    r"""Rounds of message passing over both directions of the edges, with shared weights:

    .. math::
        m_v = W_2 \sum_{u} \mathrm{ReLU}(W_1 [h_u \,\|\, d_{uv} \,\|\, h_v] + b_1), \qquad
        h_v \leftarrow \mathrm{GRU}(m_v, h_v)

    over all neighbours :math:`u`, with :math:`d_{uv} = 1` for a predecessor and 0 for a
    successor. And the gated sum :math:`\sum_v \sigma(W_g h_v + b_g) \odot (W_m h_v + b_m)` of width
    :math:`2H` over the nodes of a graph.
    """

    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        hidden = hidden_channels
        self.sender = nn.Linear(hidden, hidden, bias=False)  # W_1 for h_u
        self.receiver = nn.Linear(hidden, hidden)  # W_1 for h_v, and b_1
        self.direction = nn.Parameter(torch.empty(hidden).uniform_(-0.1, 0.1))  # W_1 for d_uv
        self.message = nn.Linear(hidden, hidden, bias=False)  # W_2
        self.cell = nn.GRUCell(hidden, hidden)
        self.gate = nn.Linear(hidden, 2 * hidden)
        self.map = nn.Linear(hidden, 2 * hidden)

    def forward(self, h: Tensor, edge: Tensor) -> Tensor:
        """States ``[B, n, H]`` after all rounds, over edges ``[B, n, n]`` of ones and zeros."""
        n = h.size(1)
        either = (edge + edge.transpose(1, 2)).flatten(0, 1).unsqueeze(1)  # [B n, 1, n]
        # Nodes are in topological order: a neighbour with a smaller number is a predecessor.
        direction = edge.new_ones(n, n).tril(-1).unsqueeze(-1) * self.direction  # [n, n, H]
        for _ in range(ROUNDS):
            pairs = self.sender(h).unsqueeze(1) + self.receiver(h).unsqueeze(2) + direction
            sums = torch.bmm(either, pairs.relu().flatten(0, 1)).squeeze(1)  # [B n, H]
            inner = linear(self.message(sums), self.cell.weight_ih, self.cell.bias_ih)
            h = gru(inner, linear(h, self.cell.weight_hh, self.cell.bias_hh), h)
        return h

    def graph(self, h: Tensor, node: Tensor) -> Tensor:
        """The gated sum over nodes ``[B, n]`` of ones and zeros. ``[B, 2H]``"""
        gated = self.gate(h).sigmoid() * self.map(h)
        return torch.bmm(node.unsqueeze(1), gated).squeeze(1)


class DeepGMGEncoder(nn.Module):
    """Message passing from the nodes' types, and the gated sum over all nodes."""

    def __init__(self, num_types: int, hidden_channels: int) -> None:
        super().__init__()
        self.out_channels = 2 * hidden_channels
        self.start = nn.Linear(num_types, hidden_channels)
        self.passing = MessagePassing(hidden_channels)

    def forward(self, graphs: SmallDags) -> Tensor:
        """Graph vectors. ``[B, 2H]``"""
        dtype = self.start.weight.dtype
        x = one_hot_types(graphs, dtype).transpose(0, 1)
        h = self.passing(self.start(x), graphs.adjacency.to(dtype))
        return self.passing.graph(h, graphs.is_node.to(dtype))


class DeepGMGDecoder(nn.Module):
    r"""The decoder of DeepGMG. For each node: its type; then, until it is told to stop, one more
    edge or stop, and from which node. States start anew from types and :math:`h_0` before every
    decision and are spread by message passing over the graph so far, so that all graphs on the
    way to a given one are independent, and are one batch.

    A node's edges are taught from the newest sender back. On the CPU, only graphs that differ are
    computed; elsewhere shapes do not depend on the graphs.
    """

    newest: Tensor
    oldest: Tensor
    begins: Tensor
    complete: Tensor

    def __init__(self, num_types: int, max_nodes: int, hidden_channels: int) -> None:
        super().__init__()
        self.num_types = num_types
        self.max_nodes = max_nodes
        self.hidden_channels = hidden = hidden_channels
        self.start_type = nn.Linear(num_types, hidden)
        self.start_state = nn.Linear(hidden, hidden, bias=False)
        self.passing = MessagePassing(hidden)
        self.type_head = mlp(2 * hidden, 2 * hidden, num_types)
        self.add_head = mlp(3 * hidden, 2 * hidden, 1)
        self.from_sender = nn.Linear(hidden, 2 * hidden)
        self.from_receiver = nn.Linear(hidden, 2 * hidden, bias=False)
        self.from_out = nn.Linear(2 * hidden, 1)
        # A graph so far: v is its newest node, and has its edges from nodes later than u.
        pairs = [(v, u) for v in range(max_nodes) for u in range(v - 1, -2, -1)]
        newest, oldest = torch.tensor(pairs).unbind(-1)  # [P]
        begins = oldest == newest - 1
        complete = (oldest == -1).nonzero().squeeze(-1)[:-1]  # [n - 1]
        self.register_buffer("newest", newest, persistent=False)
        self.register_buffer("oldest", oldest, persistent=False)
        self.register_buffer("begins", begins, persistent=False)
        self.register_buffer("complete", complete, persistent=False)

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""
        size, count = len(h0), len(self.newest)
        place = torch.arange(self.max_nodes, device=h0.device)
        into = graphs.adjacency.index_select(1, self.newest)  # [B, P, n]
        known = into & (place > self.oldest.unsqueeze(-1))
        # A graph so far is asked once: when its newest node begins, or has just got an edge.
        just = into & (place == self.oldest.unsqueeze(-1) + 1)
        asked = self.begins | just.any(-1)  # [B, P]
        if dense.has_static_shapes(h0):
            row = of_pair = torch.arange(size * count, device=h0.device)
        else:
            row = asked.flatten().nonzero().squeeze(-1)  # [R]
            of_pair = asked.flatten().cumsum(0) - 1  # the last that was asked
        graph, newest = row // count, self.newest.repeat(size).index_select(0, row)
        known, into = (t.flatten(0, 1).index_select(0, row) for t in (known, into))  # [R, n]
        so_far = graphs.index_select(graph)
        is_newest = place == newest.unsqueeze(-1)
        adjacency = so_far.adjacency & (place < newest.unsqueeze(-1)).unsqueeze(-1)
        adjacency |= known.unsqueeze(1) & is_newest.unsqueeze(-1)
        node = place <= newest.unsqueeze(-1)
        types = one_hot(so_far.types, self.num_types)
        h, state = self._look(h0.index_select(0, graph), types, node, adjacency)
        term = self._edge_terms(h, state, is_newest, known, into & ~known)
        term = term.index_select(0, of_pair).view(size, count)
        valid = self.newest < graphs.num_nodes.unsqueeze(-1)
        row_of_type = of_pair.view(size, count).index_select(1, self.complete).t()  # [n - 1, B]
        types_of = state.index_select(0, row_of_type.flatten()).view(*row_of_type.shape, -1)
        return (term * (asked & valid)).sum(-1) + type_terms(self.type_head(types_of), graphs)

    def _look(
        self, h0: Tensor, types: Tensor, node: Tensor, adjacency: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Message passing on graphs so far: states ``[R, n, H]`` and graph states ``[R, 2H]``."""
        h = self.start_type(types.to(h0.dtype)) + self.start_state(h0).unsqueeze(1)
        h = self.passing(h.tanh(), adjacency.to(h0.dtype))
        return h, self.passing.graph(h, node.to(h0.dtype))

    def _edge_terms(
        self, h: Tensor, state: Tensor, is_newest: Tensor, known: Tensor, left: Tensor
    ) -> Tensor:
        """Log-probabilities of the next decisions on edges, given those that are left. ``[R]``"""
        newest = torch.bmm(is_newest.unsqueeze(1).to(h.dtype), h).squeeze(1)
        place = torch.arange(self.max_nodes, device=h.device)
        free = self._free(is_newest, known)
        logit = self._add(state, newest)
        add = left.any(-1)
        more = logsigmoid(torch.where(add, logit, -logit))
        sender = (left * (place + 1)).argmax(-1)  # the newest of those that are left
        choice = cross_entropy(self._senders(h, newest, free), sender, reduction="none")
        return torch.where(free.any(-1), more, 0.0) - torch.where(add, choice, 0.0)

    def _free(self, is_newest: Tensor, known: Tensor) -> Tensor:
        """Senders that a node may still choose: earlier, and not yet joined. bool ``[R, n]``"""
        earlier = is_newest.long().cumsum(-1) == 0
        return earlier & ~known

    def _add(self, state: Tensor, newest: Tensor) -> Tensor:
        """Logits of one more edge. ``[R]``"""
        out: Tensor = self.add_head(torch.cat([state, newest], -1)).squeeze(-1)
        return out

    def _senders(self, h: Tensor, newest: Tensor, free: Tensor) -> Tensor:
        """Logits of the senders. ``[R, n]``"""
        hidden = (self.from_sender(h) + self.from_receiver(newest).unsqueeze(1)).relu()
        return torch.where(free, self.from_out(hidden).squeeze(-1), BLOCKED)

    def generate(
        self, h0: Tensor, stochastic: bool, generator: torch.Generator | None
    ) -> SmallDags:
        """A graph for each state."""
        size, n = len(h0), self.max_nodes
        growing = GrowingDags(size, n, self.num_types, h0.device)
        every = torch.arange(size, device=h0.device)
        state = self._so_far(growing, h0, every, 1)[1]  # of every graph so far
        for v in range(1, n):
            growing.add_node(v, choose(self.type_head(state), stochastic, generator))
            edge = torch.zeros(size, n, dtype=torch.bool, device=h0.device)
            inner = growing.growing & (growing.types[:, v] != OUTPUT)
            adding = inner.nonzero().squeeze(-1)  # the graphs that still get edges
            for joined in range(v + 1):
                if not len(adding):
                    break
                h, state[adding] = self._so_far(growing, h0, adding, v + 1)
                if joined == v:  # to all nodes: there is nothing to ask
                    break
                more = toss(self._add(state[adding], h[:, v]), stochastic, generator)
                adding, h = adding[more], h[more]
                if not len(adding):
                    break
                free = nn.functional.pad(~edge[adding, :v], (0, 1))
                sender = choose(self._senders(h, h[:, v], free), stochastic, generator)
                edge[adding, sender] = True
                growing.adjacency[adding, v, sender] = True
            growing.add_edges(v, edge)
        return growing.finish()

    def _so_far(
        self, growing: GrowingDags, h0: Tensor, graph: Tensor, size: int
    ) -> tuple[Tensor, Tensor]:
        """:meth:`_look` at some of the graphs, of which each has :obj:`size` nodes."""
        types = one_hot(growing.types[graph, :size], self.num_types)
        node = torch.ones(types.shape[:2], device=h0.device)
        return self._look(h0[graph], types, node, growing.adjacency[graph, :size, :size])
