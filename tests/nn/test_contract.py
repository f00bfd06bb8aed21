"""What holds for every aggregator, cell and readout; relabelling is in ``test_theorem2.py``."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.testing import assert_close
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, LevelSchedule
from tests.nn.configurations import (
    COMBINATIONS,
    HIDDEN,
    READOUTS,
    example_batch,
    example_graphs,
    gradients,
    kite,
    make_graph,
    make_model,
)

every_combination = pytest.mark.parametrize(("aggregator", "cell"), COMBINATIONS)


@every_combination
def test_a_batch_equals_its_graphs_one_by_one(aggregator: str, cell: str) -> None:
    """Outputs and gradients, with empty graphs first, inside and last."""
    graphs = example_graphs()
    batch = Batch.from_data_list(graphs)
    for readout in READOUTS:
        model = make_model(aggregator, cell, num_layers=1, readout=readout, bidirectional=True)
        together, alone = model(batch), torch.cat([model(graph) for graph in graphs])
        assert_close(together, alone)
        wanted = gradients(alone, model)
        for g, g_alone in zip(gradients(together, model), wanted, strict=True):
            assert_close(g, g_alone)


@every_combination
def test_gradients_equal_finite_differences(aggregator: str, cell: str) -> None:
    layers = 2 if (aggregator, cell) == ("attention-tied", "gru") else 1
    model = make_model(aggregator, cell, num_layers=layers, bidirectional=True, out_channels=2)
    data = kite()
    names, parameters = zip(*model.named_parameters(), strict=True)

    def run(x: Tensor, edge_attr: Tensor, *values: Tensor) -> Tensor:
        arguments = (x, data.edge_index, data.edge_type, edge_attr)
        return functional_call(model, dict(zip(names, values, strict=True)), arguments)

    inputs = [data.x, data.edge_attr, *(p.detach() for p in parameters)]
    inputs = [t.clone().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@every_combination
def test_without_predecessors_the_message_is_exactly_zero(aggregator: str, cell: str) -> None:
    model = make_model(aggregator, cell, num_layers=1)
    layer = model.forward_layers[0]
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    none = torch.zeros(0, dtype=torch.long)
    edges = layer.aggregator.embed_edges(none, x.new_zeros(0, 2))
    message = layer.aggregator(x, x.new_zeros(0, HIDDEN), none, edges)
    assert message.shape == (5, layer.aggregator.message_channels)
    assert torch.equal(message, torch.zeros_like(message))

    data = make_graph([(0, 1)], 3)
    zero = x.new_zeros(1, layer.aggregator.message_channels)
    state = (zero, x.new_zeros(1, HIDDEN)) if cell == "lstm" else zero
    alone = layer.cell(data.x[2:], state)
    alone = alone[0] if cell == "lstm" else alone
    # Some CPUs add up a product of one row in another order than a product of three.
    among_others = model.embed_nodes(data).forward[1][2:]
    torch.testing.assert_close(among_others, alone, rtol=1e-12, atol=1e-14)


@every_combination
@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_graphs_without_edges(aggregator: str, cell: str, num_nodes: int) -> None:
    model = make_model(aggregator, cell, bidirectional=True)
    data = make_graph([], num_nodes)
    out = model(data)
    assert out.shape == (1, model.out_channels)
    assert bool(out.isfinite().all())
    assert [len(h) for h in model.embed_nodes(data).forward] == [num_nodes] * 3
    if num_nodes == 0:
        assert torch.equal(out, torch.zeros_like(out))
        return
    out.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("readout_nodes", ["targets", "all"])
def test_empty_graphs_in_a_batch_are_zero(readout: str, readout_nodes: str) -> None:
    model = make_model(
        "attention-types", readout=readout, readout_nodes=readout_nodes, bidirectional=True
    )
    batch = example_batch()
    out = model(batch)
    assert out.shape == (7, model.out_channels)
    assert out.abs().sum(1).eq(0).tolist() == [True, False, False, True, False, False, True]
    tensors = (batch.x, batch.edge_index, batch.edge_type, None, batch.batch)
    assert torch.equal(model(*tensors, batch_size=7), out)
    assert torch.equal(model(*tensors), out[:6])  # a graph after the last node is not known of
    biased = make_model("attention-types", readout=readout, out_channels=2)
    assert_close(biased(batch)[-1], biased.lin.bias)


def test_no_graph_at_all() -> None:
    model = make_model("attention", bidirectional=True)
    none = torch.zeros(0, 3, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.long)
    empty = torch.zeros(0, dtype=torch.long)
    assert model(*none, batch=empty).shape == (0, model.out_channels)
    assert model(*none, batch=empty, batch_size=2).tolist() == [[0.0] * model.out_channels] * 2


@pytest.mark.parametrize(
    ("aggregator", "changes"),
    [("sum", True), ("gated_sum", True), ("mul", True), ("epsilon_sum", True),
     ("attention", False), ("mean", False), ("max", False)],
)  # fmt: skip
def test_an_edge_that_occurs_twice_carries_two_messages(aggregator: str, changes: bool) -> None:
    """A lone predecessor's mean, maximum and softmax do not change when it is doubled."""
    model = make_model(aggregator, num_layers=1)
    once, twice = make_graph([(0, 1)], 2), make_graph([(0, 1), (0, 1)], 2)
    twice.x = once.x
    assert torch.allclose(model(once), model(twice)) != changes


def inputs_of(data: Data) -> dict[str, Tensor]:
    return {name: data[name] for name in ("x", "edge_index", "edge_type", "edge_attr", "batch")}


@every_combination
def test_data_batch_tensors_and_schedule_agree(aggregator: str, cell: str) -> None:
    model: DAGNN = make_model(aggregator, cell, bidirectional=True)
    batch = example_batch()
    tensors = {**inputs_of(batch), "batch_size": batch.num_graphs}
    expected = model(batch)
    assert torch.equal(model(**tensors), expected)
    schedule = LevelSchedule.from_edge_index(batch.edge_index, batch.num_nodes)
    assert torch.equal(model(**tensors, schedule=schedule), expected)
    del tensors["edge_index"]
    assert torch.equal(model(**tensors, schedule=schedule), expected)
