import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from dagnn import CycleError
from dagnn.graph.convert import from_adjacency, from_networkx, to_adjacency, to_networkx
from tests.graph.strategies import dags

NAMES = ["b", ("a", 1), 7, frozenset({2})]
TRIANGLE = Data(edge_index=torch.tensor([[0, 1, 0], [1, 2, 2]]), num_nodes=3)


def example() -> nx.DiGraph:
    b, a, seven, two = NAMES
    graph = nx.DiGraph(y=2.5)
    graph.add_node(b, x=[1.0, 2.0], colour="red")
    graph.add_node(a, x=[3.0, 4.0])
    graph.add_node(seven, x=[5.0, 6.0])
    graph.add_node(two, x=[7.0, 8.0])
    graph.add_edge(seven, b, edge_type=1, edge_attr=[0.5])
    graph.add_edge(b, a, edge_type=0, edge_attr=[1.5])
    return graph


def test_from_networkx() -> None:
    data = from_networkx(example())
    assert data.node_names == NAMES
    assert data.edge_index.tolist() == [[0, 2], [1, 0]]  # as networkx lists them: by source
    assert data.edge_type.tolist() == [0, 1]
    assert data.edge_attr.tolist() == [[1.5], [0.5]]
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert (data.x.dtype, data.edge_type.dtype) == (torch.float32, torch.long)
    assert data.y == 2.5
    assert set(data.keys()) == {
        *("edge_index", "num_nodes", "node_names", "x", "edge_type", "edge_attr", "y")
    }
    data.validate()


def test_networkx_and_back() -> None:
    graph = example()
    back = to_networkx(from_networkx(graph))
    del graph.nodes["b"]["colour"]
    assert list(back.nodes(data=True)) == list(graph.nodes(data=True))
    assert list(back.edges(data=True)) == list(graph.edges(data=True))
    assert back.graph == graph.graph
    assert not back.is_multigraph()


@given(dags(duplicates=True), st.data())
def test_networkx_round_trip(data: Data, draw: st.DataObject) -> None:
    n, e = data.num_nodes, data.edge_index.size(1)
    data.x = torch.randn(n, 3)
    data.edge_type = torch.arange(e)
    data.edge_attr = torch.randn(e, 2)
    data.y = torch.tensor([1, 2, 3])
    names = st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text()))
    data.node_names = draw.draw(st.lists(names, min_size=n, max_size=n, unique=True))
    graph = to_networkx(data)
    assert graph.number_of_edges() == e
    back = from_networkx(graph)
    assert (back.num_nodes, back.node_names) == (n, data.node_names)
    assert back.y.equal(data.y)
    if n:
        assert back.x.equal(data.x)
    if e:  # the edge's type is its number here
        assert back.edge_type.sort().values.equal(data.edge_type)
        assert data.edge_index[:, back.edge_type].equal(back.edge_index)
        assert data.edge_attr[back.edge_type].equal(back.edge_attr)
    else:
        assert back.edge_index.shape == (2, 0)
        assert back.edge_index.dtype == torch.long


def test_networkx_keeps_parallel_edges() -> None:
    graph = nx.MultiDiGraph([(0, 1), (0, 1)])
    data = from_networkx(graph)
    assert data.edge_index.tolist() == [[0, 0], [1, 1]]
    assert nx.utils.graphs_equal(to_networkx(data), graph)


def test_networkx_values_of_numpy_and_torch() -> None:
    graph = nx.DiGraph([(0, 1)], y=np.array([1.0, 2.0]))
    graph.nodes[0]["x"], graph.nodes[1]["x"] = np.array([1.0, 2.0]), torch.tensor([3.0, 4.0])
    graph.edges[0, 1]["edge_attr"] = np.float64(0.5)
    data = from_networkx(graph)
    assert data.x.equal(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert data.edge_attr.equal(torch.tensor([0.5]))
    assert data.y.equal(torch.tensor([1.0, 2.0]))


def test_networkx_levels() -> None:
    data = Data(**TRIANGLE.to_dict(), level=torch.arange(3), reverse_level=torch.arange(3).flip(0))
    back = from_networkx(to_networkx(data))
    assert back.level.equal(data.level)
    assert back.reverse_level.equal(data.reverse_level)


def test_networkx_names_the_cycle() -> None:
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "b")])
    with pytest.raises(CycleError, match="cycle of 2 nodes: b -> c -> b") as caught:
        from_networkx(graph)
    assert caught.value.cycle == ["b", "c"]
    assert from_networkx(graph, allow_cycles=True).edge_index.tolist() == [[0, 1, 2], [1, 2, 1]]


def set_node(graph: nx.DiGraph, **attributes) -> nx.DiGraph:
    graph.nodes["b"].update(attributes)
    return graph


def without(graph: nx.DiGraph) -> nx.DiGraph:
    del graph.nodes[7]["x"]
    return graph


def untyped(graph: nx.DiGraph) -> nx.DiGraph:
    graph.add_edge(7, ("a", 1), edge_attr=[1.0])
    return graph


def retyped(graph: nx.DiGraph) -> nx.DiGraph:
    graph.edges[7, "b"]["edge_type"] = 0.5
    return graph


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (nx.Graph([(0, 1)]), TypeError, r"networkx.DiGraph, got Graph; give each edge a direction"),
        ([(0, 1)], TypeError, r"networkx.DiGraph, got list"),
        (without(example()), ValueError, "'x' everywhere or nowhere, but 7 has none"),
        (untyped(example()), ValueError, r"'edge_type' .* but \(7, \('a', 1\)\) has none"),
        (set_node(example(), x=[1.0]), ValueError, "lists of equal length in x"),
        (set_node(example(), x="red"), ValueError, "expected numbers .* in x"),
        (retyped(example()), TypeError, r"edge_type of dtype torch.int64, got torch.float32"),
    ],
)
def test_bad_networkx(graph, error, message) -> None:
    with pytest.raises(error, match=message):
        from_networkx(graph)


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]]),
        np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=np.uint16),
        np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool),
        torch.tensor([[0.0, 1, 1], [0, 0, 1], [0, 0, 0]]),
        torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0]]),
    ],
)
def test_from_adjacency(matrix) -> None:
    data = from_adjacency(matrix)
    assert data.edge_index.tolist() == [[0, 0, 1], [1, 2, 2]]
    assert data.num_nodes == 3


@given(dags(duplicates=False))
def test_adjacency_round_trip(data: Data) -> None:
    matrix = to_adjacency(data)
    assert matrix.shape == (data.num_nodes, data.num_nodes)
    assert matrix.dtype == torch.long
    assert int(matrix.sum()) == data.edge_index.size(1)
    assert all(matrix[u, v] == 1 for u, v in data.edge_index.t().tolist())
    back = from_adjacency(matrix)
    assert back.num_nodes == data.num_nodes
    assert back.edge_index.t().tolist() == sorted(data.edge_index.t().tolist())


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (np.zeros((2, 3)), ValueError, r"square adjacency matrix, got \[2, 3\]"),
        (np.zeros(4), ValueError, r"square adjacency matrix, got \[4\]"),
        ([[0, 1], [0, 0]], TypeError, "dense torch.Tensor or numpy array of numbers, got list"),
        (np.array([["0"]]), TypeError, "array of numbers, got <U1"),
        (torch.eye(2).to_sparse(), TypeError, "dense torch.Tensor"),
        (np.array([[0, 2], [0, 0]]), ValueError, r"zeros and ones .* got 2 at \[0, 1\]; pass"),
        (np.array([[0, 0.3], [0, 0]]), ValueError, r"zeros and ones .* got 0.3 at \[0, 1\]"),
        (np.array([[0, np.nan], [0, 0]]), ValueError, "zeros and ones .* got nan"),
        (np.array([[0, 1], [1, 0]]), CycleError, "0 -> 1 -> 0"),
        (np.eye(3), CycleError, "self-loop"),
    ],
)
def test_bad_adjacency(matrix, error, message) -> None:
    with pytest.raises(error, match=message):
        from_adjacency(matrix)


def test_adjacency_with_cycles_if_asked_for() -> None:
    matrix = torch.tensor([[0, 1], [1, 0]])
    assert to_adjacency(from_adjacency(matrix, allow_cycles=True)).equal(matrix)


def test_duplicate_edges_do_not_fit_a_matrix() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 0], [1, 2, 1]]), num_nodes=3)
    with pytest.raises(ValueError, match=r"every edge once, .* got 0 -> 1 2 times; remove"):
        to_adjacency(data)
    assert to_adjacency(data.coalesce()).sum() == 2


@pytest.mark.parametrize("export", [to_networkx, to_adjacency])
@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ("graph", TypeError, "Data of one graph, got str"),
        (Batch.from_data_list([TRIANGLE, TRIANGLE]), TypeError, r"apart with to_data_list\(\)"),
        (Data(num_nodes=2), TypeError, "got NoneType"),
        (Data(edge_index=torch.tensor([[0], [5]]), num_nodes=3), ValueError, "got 5"),
        (
            Data(**TRIANGLE.to_dict(), x=torch.zeros(2, 4)),
            ValueError,
            r"x with one row per node, 3 in all, got shape \[2, 4\]",
        ),
        (
            Data(**TRIANGLE.to_dict(), edge_attr=torch.zeros(4)),
            ValueError,
            r"edge_attr with one row per edge, 3 in all, got shape \[4\]",
        ),
        (Data(**TRIANGLE.to_dict(), x=torch.tensor(1.0)), ValueError, r"got shape \[\]"),
        (
            Data(**TRIANGLE.to_dict(), level=torch.zeros(3)),
            TypeError,
            r"level of dtype torch.int64, got torch.float32",
        ),
    ],
)
def test_bad_data(export, data, error, message) -> None:
    with pytest.raises(error, match=message):
        export(data)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "a list of 3 names, got 2"),
        ("abc", "a list of 3 names, got str"),
        (["a", "b", "a"], "different node_names"),
        ([1, True, 2], "different node_names"),
    ],
)
def test_bad_names(names, message) -> None:
    with pytest.raises(ValueError, match=message):
        to_networkx(Data(**TRIANGLE.to_dict(), node_names=names))
