"""Teacher-forced likelihoods of the autoencoders, decision by decision as graphs are generated.

Nothing is shared between decisions, and nothing with the models but their weights: this is what
the losses that take all decisions at once are compared with, in tests and in benchmarks. All
graphs of a batch have the same number of nodes, and no padding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from dagnn.autoencoders.dag_decoder import DagDecoder
from dagnn.autoencoders.dag_layer import DagLayer
from dagnn.autoencoders.deepgmg import ROUNDS, DeepGMGDecoder, MessagePassing
from dagnn.autoencoders.sequence import RowByRowDecoder, SequenceDecoder
from dagnn.autoencoders.vae import KL_WEIGHT, NOISE, DagVAE
from dagnn.datasets.small_dags import SmallDags

__all__ = ["log_likelihood", "loss"]


def loss(model: DagVAE, graphs: SmallDags, noise: Tensor) -> Tensor:
    """The training loss of a batch."""
    mean, log_variance = model.encode(graphs)
    z = mean + NOISE * noise * (0.5 * log_variance).exp()
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return KL_WEIGHT * divergence - log_likelihood(model, z, graphs).sum()


def log_likelihood(model: DagVAE, z: Tensor, graphs: SmallDags) -> Tensor:
    """Of each graph, at a latent point each. ``[B]``"""
    h0 = torch.tanh(model.lift(z))
    decoder: Any = model.decoder
    by_decoder: dict[type, Any] = {
        DagDecoder: _dag,
        SequenceDecoder: _sequence,
        RowByRowDecoder: _row_by_row,
        DeepGMGDecoder: _deepgmg,
    }
    total: Tensor = by_decoder[type(decoder)](decoder, h0, graphs)
    return total


def _dag(decoder: Any, h0: Tensor, graphs: SmallDags) -> Tensor:
    size, n = graphs.types.shape
    x = one_hot(graphs.types, graphs.num_types).to(h0.dtype)  # [B, n, T]
    layers = list(decoder.layers)
    finished: list[list[Tensor]] = [[] for _ in layers]  # per layer, states of nodes
    total = h0.new_zeros(size)
    for v in range(n):
        states: list[Tensor] = []
        if v > 0:
            last = finished[-1]
            known = torch.stack(last).sum(0) if decoder.types_see_sum else last[-1]
            types = decoder.type_head(known).log_softmax(-1)
            total = total + types.gather(1, graphs.types[:, v : v + 1]).squeeze(1)
        edge = torch.zeros(size, n, dtype=torch.bool, device=h0.device)
        for u in reversed(range(-1, v)):
            states = []
            for layer, nodes in zip(layers, finished, strict=True):
                message = h0 if v == 0 else _message(layer, nodes, x, edge[:, :v].clone())
                states.append(layer.cell(states[-1] if states else x[:, v], message))
            if u < 0:
                break
            parts = [decoder.edge_from(finished[-1][u]), decoder.edge_to(states[-1])]
            if decoder.edge_start is not None:
                parts.append(decoder.edge_start(h0))
            logit = decoder.edge_out(torch.stack(parts).sum(0).relu()).squeeze(1)
            true = graphs.adjacency[:, v, u]
            edge[:, u] = true
            total = total + logsigmoid(torch.where(true, logit, -logit))
        for nodes, state in zip(finished, states, strict=True):
            nodes.append(state)
    return total


def _message(layer: DagLayer, nodes: list[Tensor], x: Tensor, edge: Tensor) -> Tensor:
    """The message over the edges ``[B, v]`` from ``v`` nodes, in the words of the equation."""
    values, scores = [], []
    for u, h in enumerate(nodes):
        place = h.new_zeros(len(h), layer.max_nodes)
        place[:, u] = 1
        sent = x[:, u] if layer.aggregator == "type_sum" else torch.cat([h, place], -1)
        if layer.key is not None:
            values.append(h)
            scores.append(layer.key(sent).squeeze(1))
        else:
            assert layer.gate is not None
            assert layer.map is not None
            values.append(torch.sigmoid(layer.gate(sent)) * layer.map(sent))
    if scores:
        score = torch.stack(scores, 1).masked_fill(~edge, -torch.inf)
        alpha = torch.where(edge.any(1, keepdim=True), score, 0.0).softmax(1)
        weight = torch.where(edge, alpha, 0.0)
    else:
        weight = edge.to(x.dtype)
    return torch.einsum("bu,buh->bh", weight, torch.stack(values, 1))


def _sequence(decoder: Any, h0: Tensor, graphs: SmallDags) -> Tensor:
    size, n = graphs.types.shape
    state, total = torch.zeros_like(h0), h0.new_zeros(size)
    for v in range(1, n):
        state = decoder.cell(h0, state)
        types = decoder.type_head(state).log_softmax(-1)
        total = total + types.gather(1, graphs.types[:, v : v + 1]).squeeze(1)
        logits = decoder.edge_head(state)
        for u in range(v):
            edge, logit = graphs.adjacency[:, v, u], logits[:, u]
            total = total + logsigmoid(torch.where(edge, logit, -logit))
    return total


def _row_by_row(decoder: Any, h0: Tensor, graphs: SmallDags) -> Tensor:
    size, n = graphs.types.shape
    state, total = h0, h0.new_zeros(size)
    x = one_hot(graphs.types, graphs.num_types)
    for v in range(1, n):
        row = torch.zeros(size, decoder.node_cell.input_size, dtype=h0.dtype, device=h0.device)
        row[:, : graphs.num_types] = x[:, v - 1]
        row[:, graphs.num_types : graphs.num_types + v - 1] = graphs.adjacency[:, v - 1, : v - 1]
        state = decoder.node_cell(row, state)
        types = decoder.type_head(state).log_softmax(-1)
        total = total + types.gather(1, graphs.types[:, v : v + 1]).squeeze(1)
        h, fed = state, h0.new_zeros(size, 1)
        for u in range(v):
            h = decoder.edge_cell(fed, h)
            edge, logit = graphs.adjacency[:, v, u], decoder.edge_head(h).squeeze(1)
            total = total + logsigmoid(torch.where(edge, logit, -logit))
            fed = torch.where(edge, 1.0, -1.0).to(h0.dtype).unsqueeze(1)
    return total


def _deepgmg(decoder: Any, h0: Tensor, graphs: SmallDags) -> Tensor:
    size, n = graphs.types.shape
    x = one_hot(graphs.types, graphs.num_types).to(h0.dtype)
    start = torch.tanh(decoder.start_type(x) + decoder.start_state(h0).unsqueeze(1))
    so_far = torch.zeros_like(graphs.adjacency)
    total = h0.new_zeros(size)
    for v in range(1, n):
        _, state = _pass(decoder.passing, start[:, :v], so_far)
        types = decoder.type_head(state).log_softmax(-1)
        total = total + types.gather(1, graphs.types[:, v : v + 1]).squeeze(1)
        adding = torch.ones(size, dtype=torch.bool, device=h0.device)
        for _ in range(v):
            h, state = _pass(decoder.passing, start[:, : v + 1], so_far)
            left = graphs.adjacency[:, v, :v] & ~so_far[:, v, :v]
            more = left.any(1)
            logit = decoder.add_head(torch.cat([state, h[:, v]], -1)).squeeze(1)
            total = total + adding * logsigmoid(torch.where(more, logit, -logit))
            adding = adding & more
            scores = torch.stack(
                [
                    decoder.from_out(
                        (decoder.from_sender(h[:, u]) + decoder.from_receiver(h[:, v])).relu()
                    ).squeeze(1)
                    for u in range(v)
                ],
                1,
            )
            free = ~so_far[:, v, :v] | ~adding.unsqueeze(1)
            choice = scores.masked_fill(~free, -torch.inf).log_softmax(1)
            place = torch.arange(v, device=h0.device)
            sender = torch.where(left, place, -1).amax(1).clamp(min=0)
            term = choice.gather(1, sender.unsqueeze(1)).squeeze(1)
            total = total + torch.where(adding, term, 0.0)
            so_far = so_far.clone()
            so_far[:, v, :v] |= adding.unsqueeze(1) & (place == sender.unsqueeze(1))
    return total


def _pass(passing: MessagePassing, h: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """States and graph state after message passing over the first nodes' edges."""
    nodes = list(h.unbind(1))
    for _ in range(ROUNDS):
        after = []
        for v, receiver in enumerate(nodes):
            message = torch.zeros_like(receiver)
            for u, sender in enumerate(nodes):
                edge = adjacency[:, v, u] if u < v else adjacency[:, u, v]
                inner = passing.sender(sender) + passing.receiver(receiver)
                if u < v:
                    inner = inner + passing.direction
                message = message + edge.unsqueeze(1) * inner.relu()
            after.append(passing.cell(passing.message(message), receiver))
        nodes = after
    gated = [torch.sigmoid(passing.gate(node)) * passing.map(node) for node in nodes]
    return torch.stack(nodes, 1), torch.stack(gated).sum(0)
