"""The dense encoders against the core's modules, with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dagnn
from dagnn.autoencoders.dag_layer import DagLayer
from dagnn.autoencoders.encoders import ConvolutionEncoder, DAGNNEncoder, DVAEEncoder
from dagnn.autoencoders.sequence import SequenceEncoder
from dagnn.datasets.small_dags import SmallDags
from tests.autoencoders.graphs import cut, random_dags

HIDDEN, TYPES, NODES = 7, 5, 6


def edges(graphs: SmallDags) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, edge_index, batch and places, as the core takes them."""
    node = graphs.is_node
    number = node.flatten().cumsum(0).view(node.shape) - 1
    graph, target, source = graphs.adjacency.nonzero(as_tuple=True)
    edge_index = torch.stack([number[graph, source], number[graph, target]])
    x = nn.functional.one_hot(graphs.types[node], graphs.num_types).double()
    batch, place = node.nonzero(as_tuple=True)
    return x, edge_index, batch, place


def copy_layer(own: DagLayer, core: Any) -> None:
    core.cell.load_state_dict(own.cell.state_dict())
    if own.key is None:
        core.aggregator.gate.load_state_dict(own.gate.state_dict())
        core.aggregator.map.load_state_dict(own.map.state_dict())
        return
    # A place as the edge's type: its embedding has the score in the first entry.
    aggregator = core.aggregator
    aggregator.key.weight.copy_(own.key.weight[:, :HIDDEN])
    aggregator.edge.weight.zero_()[0, 0] = 1
    aggregator.edge_embedding.weight.zero_()[:, 0] = own.key.weight[0, HIDDEN:]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("pool", ["targets", "all"])
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("aggregator", ["attention", "gated_sum"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_dagnn_encoder(
    num_layers: int, aggregator: str, cell: str, pool: str, bidirectional: bool
) -> None:
    own = DAGNNEncoder(
        TYPES,
        NODES,
        HIDDEN,
        num_layers,
        bidirectional=bidirectional,
        pool=pool,
        aggregator=aggregator,
        cell=cell,
    ).double()
    graphs = random_dags(16)
    x, edge_index, batch, place = edges(graphs)
    directions = [(own.layers, edge_index)]
    if own.reverse_layers is not None:
        directions.append((own.reverse_layers, edge_index.flip(0)))
    pooled = []
    for layers, index in directions:
        core = dagnn.DAGNN(
            TYPES,
            HIDDEN,
            num_layers,
            aggregator=aggregator,
            cell=cell,
            edge_types=NODES,
            readout_nodes=pool,
            backend="reference",
        ).double()
        with torch.no_grad():
            for layer, other in zip(layers, core.forward_layers, strict=True):
                copy_layer(layer, other)
        pooled.append(core(x, index, edge_type=place[index[0]], batch=batch))
    torch.testing.assert_close(own(graphs), own.lin(torch.cat(pooled, -1)))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("by_type", [False, True])
def test_dvae_encoder(by_type: bool, bidirectional: bool) -> None:
    own = DVAEEncoder(TYPES, NODES, HIDDEN, bidirectional, by_type).double()
    core = dagnn.DVAEEncoder(
        TYPES,
        HIDDEN,
        None if by_type else NODES,
        bidirectional=bidirectional,
        gate="features" if by_type else "states",
    ).double()
    with torch.no_grad():
        copy_layer(own.layer, core.forward_model.forward_layers[0])
        if bidirectional:
            copy_layer(own.reverse_layer, core.reverse_model.forward_layers[0])
            core.lin.load_state_dict(own.lin.state_dict())
    graphs = random_dags(16)
    if not by_type:
        x, edge_index, batch, _ = edges(graphs)
        torch.testing.assert_close(own(graphs), core(x, edge_index, batch))
        return
    # The input and the output send, but are not summed.
    for g in range(16):
        one = cut(graphs, g)
        x, edge_index, _, _ = edges(one)
        directions = [(core.forward_model, edge_index)]
        if bidirectional:
            directions.append((core.reverse_model, edge_index.flip(0)))
        sums = [
            model.embed_nodes(x, index, edge_attr=x[index[0]]).forward[1][1:-1].sum(0)
            for model, index in directions
        ]
        expected = core.lin(torch.cat(sums)) if bidirectional else sums[0]
        torch.testing.assert_close(own(graphs[g : g + 1])[0], expected)


def test_convolution_encoder() -> None:
    """Against the formula, edge by edge, of each graph without padding."""
    own = ConvolutionEncoder(TYPES, HIDDEN, 3).double()
    graphs = random_dags(16)
    for g in range(16):
        h, (source, target), _, _ = edges(cut(graphs, g))
        received = torch.bincount(target, minlength=len(h)) + 1
        sent = torch.bincount(source, minlength=len(h)) + 1
        for layer in own.layers:
            mapped = h @ layer.weight.t()
            rows = [mapped[v] / (sent[v] * received[v]).sqrt() for v in range(len(h))]
            for u, v in zip(source.tolist(), target.tolist(), strict=True):
                rows[v] = rows[v] + mapped[u] / (sent[u] * received[v]).sqrt()
            h = (torch.stack(rows) + layer.bias).relu()
        torch.testing.assert_close(own(graphs[g : g + 1])[0], h[1:-1].sum(0))


def test_convolution_encoder_as_published() -> None:
    """Node by node, each state in the place of the one before."""
    own = ConvolutionEncoder(TYPES, HIDDEN, 3, as_published=True).double()
    graphs = random_dags(16)
    side_by_side = own(graphs)
    for g in range(16):
        x, (source, target), _, _ = edges(cut(graphs, g))
        received = torch.bincount(target, minlength=len(x)) + 1
        sent = torch.bincount(source, minlength=len(x)) + 1
        h = list(x)
        for layer in own.layers:
            # The first layer looks at types, which stay.
            read, h = (h, [*h]) if layer is own.layers[0] else (h, h)
            for v in range(len(x)):
                message = read[v] / received[v]
                for u in source[target == v].tolist():
                    message = message + read[u] / (sent[u] * received[v]).sqrt()
                h[v] = layer(message).relu()
        torch.testing.assert_close(side_by_side[g], torch.stack(h[1:-1]).sum(0))


def test_sequence_encoder_is_a_gru() -> None:
    own = SequenceEncoder(TYPES, NODES, HIDDEN).double()
    gru = nn.GRU(TYPES + NODES - 1, HIDDEN).double()
    with torch.no_grad():
        for name, value in own.cell.named_parameters():
            getattr(gru, f"{name}_l0").copy_(value)
    graphs = random_dags(8)
    for g in range(8):
        n = int(graphs.num_nodes[g])
        types = nn.functional.one_hot(graphs.types[g, :n], TYPES)
        rows = torch.cat([types, graphs.adjacency[g, :n, :-1]], -1).double()
        torch.testing.assert_close(own(graphs[g : g + 1]), gru(rows)[1])


@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("aggregator", ["attention", "gated_sum", "type_sum"])
def test_sweep_gradients_are_those_of_finite_differences(aggregator: str, cell: str) -> None:
    layer = DagLayer(TYPES, 3, NODES, TYPES, aggregator, cell).double()
    graphs = random_dags(3)
    types = nn.functional.one_hot(graphs.types.t(), TYPES).double()
    edge = graphs.adjacency.double()
    names = [name for name, _ in layer.named_parameters()]

    def run(x: torch.Tensor, first: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        inputs = (x, edge, types, first)
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(
            Sweep(layer), {f"layer.{k}": v for k, v in parameters.items()}, inputs
        )

    x = torch.randn(NODES, 3, TYPES, dtype=torch.double, requires_grad=True)
    first = torch.randn(3, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, first, *layer.parameters()))


class Sweep(nn.Module):
    def __init__(self, layer: DagLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.layer.sweep(*inputs)


def test_plain_sweep_equals_the_written_one() -> None:
    """Both ways of attention with a GRU, backward along the graph too."""
    layer = DagLayer(TYPES, HIDDEN, NODES, TYPES).double()
    graphs = random_dags(9)
    types = nn.functional.one_hot(graphs.types.t(), TYPES).double()
    edge, first = graphs.adjacency.double(), torch.randn(9, HIDDEN, dtype=torch.double)
    for reverse in (False, True):
        fast = layer.sweep(types, edge, types, first, reverse)
        plain = layer._plain_sweep(layer.inner(types), edge, types, first, reverse)
        torch.testing.assert_close(fast, plain)
        weight = torch.randn_like(fast)
        parameters = list(layer.parameters())
        expected = torch.autograd.grad((plain * weight).sum(), parameters)
        found = torch.autograd.grad((fast * weight).sum(), parameters)
        torch.testing.assert_close(found, expected)
