"""The family of Section 3, each against its own recursion on small trees and DAGs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, FlatGraphs, FlatLoader, LevelSchedule
from dagnn.graph.padding import without_filler
from dagnn.nn.family import DVAEEncoder, RecursiveNetwork, dag_rnn, tree_lstm

IN, HIDDEN = 3, 4

# (left, right) or a leaf's number; the inner nodes are numbered behind the leaves, root last.
TREE: Any = (((0, 1), 2), (3, (4, 5)))
NUM_NODES, ROOT = 11, 10


def tree_edges() -> tuple[Tensor, Tensor, dict[int, list[int]]]:
    """Edges from child to parent, the child's place as their type, and the children of a node."""
    children: dict[int, list[int]] = {}

    def number(tree: Any) -> int:
        if isinstance(tree, int):
            return tree
        below = [number(child) for child in tree]
        children[6 + len(children)] = below
        return 5 + len(children)

    assert number(TREE) == ROOT
    edges = [(child, parent, place) for parent, below in children.items()
             for place, child in enumerate(below)]  # fmt: skip
    columns = torch.tensor(edges).t()
    return columns[:2], columns[2], children


EDGES, PLACES, CHILDREN = tree_edges()
X = torch.randn(NUM_NODES, IN, generator=torch.Generator().manual_seed(0)).double()
# An input node 0, an output node 4, an edge that skips levels; in topological order.
DAG = torch.tensor([[0, 0, 1, 0, 2, 3, 1], [1, 2, 3, 3, 4, 4, 4]])


def check(model: nn.Module, found: Tensor, expected: Tensor) -> None:
    """Equal values, and equal gradients of all parameters."""
    assert_close(found, expected)
    weight = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    grads = [
        torch.autograd.grad((out * weight).sum(), list(model.parameters()))
        for out in (found, expected)
    ]
    for g, g_expected in zip(*grads, strict=True):
        assert_close(g, g_expected)


def test_recursive_network() -> None:
    model = RecursiveNetwork(IN, HIDDEN, arity=2).double()
    cell = model.forward_layers[0].cell
    bias = cell.bias_ih + cell.bias_hh

    def state(v: int) -> Tensor:
        if v not in CHILDREN:
            return torch.tanh(cell.weight_ih @ X[v] + bias)
        both = torch.cat([state(u) for u in CHILDREN[v]])
        return torch.tanh(cell.weight_hh @ both + bias)

    check(model, model(X, EDGES, PLACES)[0], state(ROOT))
    assert cell.weight_hh.shape == (HIDDEN, 2 * HIDDEN)
    other = X.clone()
    other[6:] = torch.randn(5, IN)  # the features of internal nodes
    assert torch.equal(model(other, EDGES, PLACES), model(X, EDGES, PLACES))
    with pytest.raises(ValueError, match="expected bidirectional=False, got True"):
        RecursiveNetwork(IN, HIDDEN, 2, bidirectional=True)


def lstm_state(model: DAGNN, v: int, nary: bool) -> tuple[Tensor, Tensor]:
    cell = model.forward_layers[0].cell
    w_i, w_o, w_g, w_f = cell.input.weight.chunk(4)
    b_i, b_o, b_g, b_f = cell.input.bias.chunk(4)
    u_i, u_o, u_g = cell.message.weight.chunk(3)
    below = [lstm_state(model, u, nary) for u in CHILDREN.get(v, [])]
    zero = X.new_zeros(HIDDEN)
    if nary:
        m = torch.cat([h for h, _ in below] or [zero, zero])
        u_f = cell.forget.weight.chunk(2)
        forget = [torch.sigmoid(w_f @ X[v] + u @ m + b_f) for u in u_f]
    else:
        m = sum((h for h, _ in below), zero)
        forget = [torch.sigmoid(w_f @ X[v] + cell.forget.weight @ h + b_f) for h, _ in below]
    i = torch.sigmoid(w_i @ X[v] + u_i @ m + b_i)
    o = torch.sigmoid(w_o @ X[v] + u_o @ m + b_o)
    c = i * torch.tanh(w_g @ X[v] + u_g @ m + b_g)
    c = sum((f * c_u for f, (_, c_u) in zip(forget, below, strict=False)), c)
    return o * torch.tanh(c), c


@pytest.mark.parametrize("arity", [None, 2])
def test_tree_lstm(arity: int | None) -> None:
    model = tree_lstm(IN, HIDDEN, arity).double()
    types = None if arity is None else PLACES
    check(model, model(X, EDGES, types)[0], lstm_state(model, ROOT, nary=arity is not None)[0])


def test_the_order_of_children_matters_to_the_nary_form_alone() -> None:
    child_sum, nary = tree_lstm(IN, HIDDEN).double(), tree_lstm(IN, HIDDEN, 2).double()
    assert_close(child_sum(X, EDGES.flip(1)), child_sum(X, EDGES))
    assert_close(nary(X, EDGES.flip(1), PLACES.flip(0)), nary(X, EDGES, PLACES))
    assert not torch.allclose(nary(X, EDGES, 1 - PLACES), nary(X, EDGES, PLACES))


def predecessors(v: int, edges: Tensor = DAG) -> list[int]:
    return [u for u, w in edges.t().tolist() if w == v]


def test_dag_rnn() -> None:
    model = dag_rnn(IN, HIDDEN).double()
    cell = model.forward_layers[0].cell

    def state(v: int) -> Tensor:
        total = sum((state(u) for u in predecessors(v)), X.new_zeros(HIDDEN))
        return torch.tanh(
            cell.weight_ih @ X[v] + cell.bias_ih + cell.weight_hh @ total + cell.bias_hh
        )

    check(model, model(X[:5], DAG)[0], state(4))


def test_further_options() -> None:
    model = tree_lstm(IN, HIDDEN, num_layers=2, aggregator="mul", out_channels=7, readout="mean")
    assert model(X.float(), EDGES).shape == (1, 7)
    assert model.forward_layers[1].aggregator.reduce == "mul"
    assert dag_rnn(IN, HIDDEN, bidirectional=True)(X[:5].float(), DAG).shape == (1, 2 * HIDDEN)


def gru(cell: nn.GRUCell, x: Tensor, m: Tensor) -> Tensor:
    i, h = cell.weight_ih @ x + cell.bias_ih, cell.weight_hh @ m + cell.bias_hh
    (ir, iz, inn), (hr, hz, hn) = i.chunk(3), h.chunk(3)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(inn + torch.sigmoid(ir + hr) * hn) + z * m


def dvae_states(model: DAGNN, edges: Tensor, ids: list[int], of_features: bool) -> list[Tensor]:
    aggregator, cell = model.forward_layers[0].aggregator, model.forward_layers[0].cell
    one_hot = torch.eye(6).double()

    def state(v: int) -> Tensor:
        m = X.new_zeros(HIDDEN)
        for u in predecessors(v, edges):
            z = X[u] if of_features else torch.cat([state(u), one_hot[ids[u]]])
            gate = torch.sigmoid(aggregator.gate.weight @ z + aggregator.gate.bias)
            m = m + gate * (aggregator.map.weight @ z)
        return gru(cell, X[v], m)

    return [state(v) for v in range(5)]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("gate", ["states", "features"])
def test_dvae_encoder(gate: str, bidirectional: bool) -> None:
    of_features = gate == "features"
    model = DVAEEncoder(
        IN, HIDDEN, None if of_features else 6, bidirectional=bidirectional, gate=gate
    ).double()
    states = dvae_states(model.forward_model, DAG, [0, 1, 2, 3, 4], of_features)
    expected = sum(states, X.new_zeros(HIDDEN)) if of_features else states[4]
    if bidirectional:
        back = dvae_states(model.reverse_model, DAG.flip(0), [0, 1, 2, 3, 4], of_features)
        reverse = sum(back, X.new_zeros(HIDDEN)) if of_features else back[0]
        expected = model.lin.weight @ torch.cat([expected, reverse]) + model.lin.bias
    check(model, model(X[:5], DAG)[0], expected)


@pytest.mark.parametrize("gate", ["states", "features"])
def test_dvae_encoder_of_a_batch(gate: str) -> None:
    """Ids start at zero in every graph; every way to give a graph gives the same."""
    model = DVAEEncoder(
        IN, HIDDEN, 6 if gate == "states" else None, bidirectional=True, gate=gate
    ).double()
    graphs = [
        Data(x=X[:5], edge_index=DAG),
        Data(x=X[:0], edge_index=DAG[:, :0]),
        Data(x=X[5:8], edge_index=torch.tensor([[0, 1], [1, 2]])),
        Data(x=X[8:9], edge_index=DAG[:, :0]),
    ]
    batch = Batch.from_data_list(graphs)
    expected = torch.cat([model(g.x, g.edge_index) for g in graphs])
    assert_close(model(batch), expected)
    tensors = (batch.x, batch.edge_index, batch.batch)
    assert_close(model(*tensors, batch_size=4), expected)
    schedule = LevelSchedule.from_data(batch)
    assert_close(model(batch.x, batch=batch.batch, schedule=schedule, batch_size=4), expected)
    ids = torch.cat([torch.arange(g.num_nodes) for g in graphs])
    assert_close(model(*tensors, batch_size=4, node_id=ids), expected)
    other = model(*tensors, batch_size=4, node_id=ids.flip(0))
    assert torch.allclose(other, expected) == (gate == "features")
    held = Data(x=batch.x, batch=batch.batch, schedule=schedule, node_id=ids.flip(0))
    assert_close(model(held, batch_size=4), other)
    assert_close(model(batch, batch_size=5), torch.cat([expected, expected[1:2]]))  # an empty one


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("gate", ["states", "features"])
@pytest.mark.parametrize("schedule", [False, True])
def test_dvae_encoder_of_a_padded_batch(gate: str, bidirectional: bool, schedule: bool) -> None:
    """A filler changes nothing, and may have more nodes than the model has places."""
    size = None if gate == "features" else 6
    model = DVAEEncoder(IN, HIDDEN, size, bidirectional=bidirectional, gate=gate).double()
    graphs = [
        Data(x=X[:5], edge_index=DAG),
        Data(x=X[5:8], edge_index=torch.tensor([[0, 1], [1, 2]])),
    ]
    flat = FlatGraphs.from_data_list(graphs)
    (plain,) = FlatLoader(flat, 2, schedule=schedule)
    (padded,) = FlatLoader(flat, 2, schedule=schedule, padded=True)
    assert padded.num_graphs == 3
    check(model, without_filler(model(padded), padded), model(plain))
    check(model, model(padded, batch_size=4)[:2], model(plain))
    if gate == "states":
        with pytest.raises(ValueError, match="at most max_nodes=4 nodes, got a node with id 4"):
            DVAEEncoder(IN, HIDDEN, max_nodes=4).double()(padded)


def test_dvae_encoder_refuses() -> None:
    with pytest.raises(ValueError, match="expected gate 'states' or 'features', got 'types'"):
        DVAEEncoder(IN, HIDDEN, 6, gate="types")
    with pytest.raises(ValueError, match=r"expected max_nodes with gate='states'.*max_nodes=None"):
        DVAEEncoder(IN, HIDDEN)
    with pytest.raises(ValueError, match=r"without it with gate='features'.*max_nodes=6"):
        DVAEEncoder(IN, HIDDEN, 6, gate="features")
    model = DVAEEncoder(IN, HIDDEN, max_nodes=4).double()
    with pytest.raises(ValueError, match="at most max_nodes=4 nodes, got a node with id 4"):
        model(X[:5], DAG)
    with pytest.raises(ValueError, match="expected edge_index or schedule, got neither"):
        model(X[:4])
    with pytest.raises(ValueError, match="node_id with a row for each of the 4 nodes, got 3"):
        model(X[:4], DAG[:, :3], node_id=torch.arange(3))
    with pytest.raises(ValueError, match="expected batch beside batch_size=3, got None"):
        model(X[:4], DAG[:, :3], batch_size=3)
    data = Data(x=X[:4], edge_index=DAG[:, :3])
    with pytest.raises(ValueError, match="either a PyG Data or tensors"):
        model(data, data.edge_index)
    data.schedule = LevelSchedule.from_edge_index(data.edge_index.flip(0))
    with pytest.raises(ValueError, match="schedule of this very graph, got one of other edges"):
        model(data)


def test_dvae_encoder_reset_parameters() -> None:
    model = DVAEEncoder(IN, HIDDEN, max_nodes=6, bidirectional=True)
    before = [p.clone() for p in model.parameters()]
    torch.manual_seed(1)
    model.reset_parameters()
    for p, old in zip(model.parameters(), before, strict=True):
        assert not torch.equal(p, old)
