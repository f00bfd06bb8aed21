"""Equations (3) to (8), and every other aggregator, cell and readout, against a computation node by
node that shares no code with the library."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch_geometric.data import Data

from dagnn import DAGNN
from tests.graph.strategies import dags
from tests.nn import plain
from tests.nn.configurations import (
    AGGREGATORS,
    COMBINATIONS,
    HIDDEN,
    KITE,
    READOUTS,
    gradients,
    kite,
    make_graph,
    make_model,
)


def plainly(model: DAGNN, data: Data, **options: Any) -> tuple[torch.Tensor, list[Any]]:
    return plain.dagnn(
        model.state_dict(keep_vars=True),
        data.x,
        [(u, v) for u, v in data.edge_index.t().tolist()],
        None if model.edge_types is None else data.edge_type.tolist(),
        None if model.edge_channels is None else data.edge_attr,
        num_layers=model.num_layers,
        hidden=HIDDEN,
        bidirectional=model.bidirectional,
        readout_nodes=model.readout_nodes,
        num_types=model.edge_types,
        **options,
    )


def compare(model: DAGNN, data: Data, **options: Any) -> None:
    data.x.requires_grad_()
    expected, states = plainly(model, data, **options)
    out = model(data)
    assert out.shape == (1, model.out_channels)
    assert_close(out[0], expected)
    found = model.embed_nodes(data)
    assert len(found.forward) == model.num_layers + 1
    assert len(found.reverse) == (model.num_layers + 1) * model.bidirectional
    for direction, wanted in zip([found.forward, found.reverse], states, strict=False):
        for h, h_expected in zip(direction, wanted, strict=True):
            assert_close(h, h_expected)
    inputs = [data.x]
    if model.edge_channels is not None:
        inputs.append(data.edge_attr.requires_grad_())
        out, expected = model(data), plainly(model, data, **options)[0]
    wanted = gradients(expected, model, *inputs)
    for g, g_expected in zip(gradients(out[0], model, *inputs), wanted, strict=True):
        assert_close(g, g_expected)


@pytest.mark.parametrize(("aggregator", "cell"), COMBINATIONS)
def test_every_aggregator_and_cell(aggregator: str, cell: str) -> None:
    model = make_model(aggregator, cell, bidirectional=True, out_channels=3)
    data = make_graph([*KITE, KITE[3]], 7)  # with a doubled edge
    compare(model, data, aggregator=AGGREGATORS[aggregator]["aggregator"], cell=cell)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("readout_nodes", ["targets", "all"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_readout(readout: str, readout_nodes: str, bidirectional: bool, backend: str) -> None:
    options: dict[str, Any] = {"readout_nodes": readout_nodes, "bidirectional": bidirectional}
    model = make_model("attention-types", readout=readout, backend=backend, **options)
    compare(model, kite(), aggregator="attention", cell="gru", readout=readout)


@given(graph=dags(max_nodes=8), num_layers=st.integers(1, 3))
@settings(max_examples=25)
def test_random_graphs(graph: Data, num_layers: int) -> None:
    if graph.num_nodes == 0:
        return
    edges = [(u, v) for u, v in graph.edge_index.t().tolist()]
    model = make_model("attention-tied", num_layers=num_layers, bidirectional=True)
    compare(model, make_graph(edges, graph.num_nodes), aggregator="attention", cell="gru")


def test_readout_puts_forward_first_and_layers_in_order() -> None:
    """Of one node alone, the readout is the concatenation of its states."""
    model = make_model("attention", bidirectional=True)
    data = make_graph([], 1)
    states = model.embed_nodes(data)
    assert_close(model(data), torch.cat([*states.forward, *states.reverse], dim=1))
    assert states.forward[0] is data.x
    assert states.reverse[0] is data.x
