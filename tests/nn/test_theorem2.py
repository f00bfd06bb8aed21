"""Theorem 2: relabelling the nodes and reordering the edges changes nothing, neither outputs nor
gradients, for every aggregator, cell and readout."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch_geometric.data import Data

from dagnn import DAGNN
from tests.graph.strategies import dags
from tests.nn.configurations import (
    COMBINATIONS,
    READOUTS,
    gradients,
    kite,
    make_graph,
    make_model,
    relabel,
)


def check_invariance(model: DAGNN, data: Data) -> None:
    other, name, _ = relabel(data)
    data.x.requires_grad_()
    other.x.requires_grad_()
    out, other_out = model(data), model(other)
    assert_close(out, other_out)
    grad_x, *grads = gradients(out, model, data.x)
    other_grad_x, *other_grads = gradients(other_out, model, other.x)
    assert_close(grad_x, other_grad_x[name])
    for g, other_g in zip(grads, other_grads, strict=True):
        assert_close(g, other_g)
    states, other_states = model.embed_nodes(data), model.embed_nodes(other)
    for direction, other_direction in zip(states, other_states, strict=True):
        for h, other_h in zip(direction, other_direction, strict=True):
            assert_close(h, other_h[name])


@pytest.mark.parametrize(("aggregator", "cell"), COMBINATIONS)
def test_relabelling_changes_nothing(aggregator: str, cell: str) -> None:
    for readout in READOUTS:
        for nodes in ("targets", "all"):
            model = make_model(
                aggregator, cell, num_layers=1, readout=readout, readout_nodes=nodes,
                bidirectional=readout == "max",
            )  # fmt: skip
            check_invariance(model, kite())


@given(graph=dags(max_nodes=10), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_relabelling_random_graphs_changes_nothing(graph: Data, seed: int) -> None:
    torch.manual_seed(seed)
    model = make_model("attention-tied", bidirectional=True, out_channels=3)
    edges = [(u, v) for u, v in graph.edge_index.t().tolist()]
    check_invariance(model, make_graph(edges, graph.num_nodes))
