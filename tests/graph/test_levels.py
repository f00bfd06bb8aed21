import multiprocessing
import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn import CycleError, longest_path_length, sources, targets, topological_levels
from tests.graph.strategies import all_dags, dags, disjoint_union

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DIAMOND = torch.tensor([[0, 1, 0, 2], [1, 3, 2, 3]])


def path(n: int) -> Tensor:
    return torch.stack([torch.arange(n - 1), torch.arange(1, n)])


def to_graph(data: Data) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.t().tolist())
    return graph


@given(dags(max_nodes=25))
def test_levels_are_networkx_generations(data: Data) -> None:
    levels = topological_levels(data.edge_index, data.num_nodes)
    assert levels.dtype == torch.long
    assert levels.shape == (data.num_nodes,)
    for i, generation in enumerate(nx.topological_generations(to_graph(data))):
        assert (levels == i).nonzero().view(-1).tolist() == sorted(generation)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_levels_of_all_small_dags(n: int) -> None:
    adjacency = all_dags(n)
    expected = np.zeros(adjacency.shape[:2], dtype=int)
    for _ in range(n):  # the definition, iterated to its fixed point
        expected = (adjacency * (expected + 1)[:, :, None]).max(axis=1)
    levels = topological_levels(disjoint_union(adjacency), len(adjacency) * n)
    assert (levels.view(-1, n).numpy() == expected).all()


@given(dags())
def test_sources_and_targets(data: Data) -> None:
    graph = to_graph(data)
    without_predecessors = [v for v in graph if graph.in_degree(v) == 0]
    without_successors = [v for v in graph if graph.out_degree(v) == 0]
    assert sources(data.edge_index, data.num_nodes).tolist() == without_predecessors
    assert targets(data.edge_index, data.num_nodes).tolist() == without_successors


@given(st.lists(dags(max_nodes=6), min_size=1, max_size=5))
def test_batch_is_its_graphs_side_by_side(graphs: list[Data]) -> None:
    batch = Batch.from_data_list(graphs)
    levels = [topological_levels(g.edge_index, g.num_nodes) for g in graphs]
    assert topological_levels(batch.edge_index, batch.num_nodes).equal(torch.cat(levels))
    lengths = [int(longest_path_length(g.edge_index, g.num_nodes)) for g in graphs]
    found = longest_path_length(batch.edge_index, batch=batch.batch, batch_size=batch.num_graphs)
    assert found.tolist() == lengths


def test_smallest_graphs() -> None:
    none = torch.empty(2, 0, dtype=torch.long)
    assert topological_levels(none).tolist() == []
    assert topological_levels(none, 0).dtype == torch.long
    assert topological_levels(none, 1).tolist() == [0]
    assert topological_levels(none, 3).tolist() == [0, 0, 0]
    assert longest_path_length(none) == 0
    assert longest_path_length(none, 3) == 1
    assert sources(none, 2).tolist() == targets(none, 2).tolist() == [0, 1]


def test_empty_graphs_in_a_batch_have_length_zero() -> None:
    batch = torch.tensor([1, 1, 3])
    lengths = longest_path_length(torch.tensor([[0], [1]]), batch=batch, batch_size=5)
    assert lengths.tolist() == [0, 2, 0, 1, 0]


def test_isolated_nodes_count_only_with_num_nodes() -> None:
    assert topological_levels(torch.tensor([[0], [1]])).tolist() == [0, 1]
    assert topological_levels(torch.tensor([[0], [1]]), 4).tolist() == [0, 1, 0, 0]


def test_duplicate_edges_change_nothing() -> None:
    twice = DIAMOND.repeat(1, 2)
    assert topological_levels(twice).equal(topological_levels(DIAMOND))


def test_input_is_left_alone() -> None:
    edges = DIAMOND.clone()
    topological_levels(edges)
    assert edges.equal(DIAMOND)


def test_strided_edge_index() -> None:
    assert topological_levels(DIAMOND.t().contiguous().t()).tolist() == [0, 1, 1, 2]
    assert topological_levels(DIAMOND.flip(0)).tolist() == [2, 1, 1, 0]


def test_depth_needs_no_recursion() -> None:
    n = 1_000_000
    assert topological_levels(path(n)).equal(torch.arange(n))


CYCLES = {
    "self-loop": ([[1], [1]], [1]),
    "self-loop among others": ([[0, 2, 1], [1, 2, 2]], [2]),
    "two nodes": ([[0, 1], [1, 0]], [0, 1]),
    "three nodes": ([[0, 3, 2, 1], [3, 2, 1, 3]], [1, 3, 2]),
    "nodes behind it": ([[2, 1, 2, 3], [1, 2, 3, 4]], [1, 2]),
}


@pytest.mark.parametrize("name", CYCLES)
def test_cycle(name: str) -> None:
    edges, cycle = CYCLES[name]
    with pytest.raises(CycleError, match="expected a directed acyclic graph, got a ") as caught:
        topological_levels(torch.tensor(edges))
    assert caught.value.cycle == cycle
    assert " -> ".join(map(str, [*cycle, cycle[0]])) in str(caught.value)
    assert ("self-loop" in str(caught.value)) == (len(cycle) == 1)


@given(dags(max_nodes=10), st.data())
def test_named_cycle_is_a_cycle(data: Data, draw: st.DataObject) -> None:
    graph = to_graph(data)
    closing = [(v, u) for u in graph for v in {u} | nx.descendants(graph, u)]
    if not closing:
        return
    back = draw.draw(st.sampled_from(closing))
    edge_index = torch.cat([data.edge_index, torch.tensor([back]).t()], dim=1)
    with pytest.raises(CycleError) as caught:
        topological_levels(edge_index, data.num_nodes)
    cycle = caught.value.cycle
    edges = set(map(tuple, edge_index.t().tolist()))
    assert all(edge in edges for edge in zip(cycle, cycle[1:] + cycle[:1], strict=True))
    assert len(set(cycle)) == len(cycle)
    assert cycle[0] == min(cycle)


def test_cycle_far_behind_a_path() -> None:
    n = 200_000
    with pytest.raises(CycleError) as caught:
        topological_levels(torch.cat([path(n), torch.tensor([[n - 1], [n - 3]])], dim=1))
    assert caught.value.cycle == [n - 3, n - 2, n - 1]


def test_long_path_behind_a_cycle() -> None:
    with pytest.raises(CycleError) as caught:
        topological_levels(torch.cat([path(100_000), torch.tensor([[2], [0]])], dim=1))
    assert caught.value.cycle == [0, 1, 2]


def test_long_cycle_is_abridged_in_the_message_alone() -> None:
    n = 1000
    with pytest.raises(CycleError, match=r"cycle of 1000 nodes: 0 -> 1 .* … -> 999 -> 0") as caught:
        topological_levels(torch.cat([path(n), torch.tensor([[n - 1], [0]])], dim=1))
    assert caught.value.cycle == list(range(n))
    assert len(str(caught.value)) < 200


def test_cycle_error_crosses_processes() -> None:
    error = CycleError.of([3, 4])
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, ValueError)
    assert (str(copy), copy.cycle) == (str(error), [3, 4])


class Cyclic(torch.utils.data.Dataset[Tensor]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Tensor:
        return topological_levels(torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="needs processes that fork"
)
def test_cycle_error_leaves_a_data_loader_worker() -> None:
    loader = torch.utils.data.DataLoader(Cyclic(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(CycleError, match="0 -> 1 -> 0"):
        next(iter(loader))


@pytest.mark.parametrize("function", [topological_levels, sources, targets, longest_path_length])
def test_every_function_checks_its_edges(function) -> None:
    with pytest.raises(ValueError, match=r"expected node indices from 0 to 3 .* got 7"):
        function(torch.tensor([[0], [7]]), 3)
    with pytest.raises(TypeError, match=r"int64, got torch.float32"):
        function(torch.zeros(2, 3))


def test_longest_path_checks_its_batch() -> None:
    with pytest.raises(ValueError, match="ascending"):
        longest_path_length(DIAMOND, batch=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="one device"):
        longest_path_length(DIAMOND.to("meta"), batch=torch.tensor([0, 0, 0, 0]))
    with pytest.raises(TypeError, match=r"batch as a torch.Tensor, got list"):
        longest_path_length(DIAMOND, batch=[0, 0, 0, 0])


@pytest.mark.parametrize("edges", [DIAMOND, torch.empty(2, 0, dtype=torch.long)])
def test_operator(edges: Tensor) -> None:
    torch.library.opcheck(torch.ops.dagnn.topological_levels.default, (edges, 5))


def test_compile() -> None:
    compiled = torch.compile(topological_levels, fullgraph=True, backend="aot_eager", dynamic=True)
    for edges, n in [(DIAMOND, 4), (path(7), 8)]:
        assert compiled(edges, n).equal(topological_levels(edges, n))
    with pytest.raises(CycleError):
        compiled(torch.tensor([[0, 1], [1, 0]]), 2)
    for wrong in (-1, 4, 10**8):
        with pytest.raises(
            ValueError, match=rf"from 0 to 4 \(exclusive\) in edge_index, got {wrong}"
        ):
            compiled(torch.tensor([[0, 1], [1, wrong]]), 4)


def test_the_operator_checks_its_edges() -> None:
    """No kernel may write where a bad edge says, however it was called."""
    with pytest.raises(ValueError, match=r"from 0 to 4 \(exclusive\) in edge_index, got 100000000"):
        torch.ops.dagnn.topological_levels(torch.tensor([[0, 1], [1, 10**8]]), 4)


@pytest.mark.cuda
@needs_cuda
def test_cuda_gives_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    low, high = torch.randint(0, 1000, (2, 5000), generator=generator).sort(0).values
    edges = torch.stack([low, high])[:, low < high]
    batch = torch.arange(1000).div(100, rounding_mode="floor")
    inside = edges[:, batch[edges[0]] == batch[edges[1]]]
    for function in (topological_levels, sources, targets, longest_path_length):
        found = function(edges.cuda(), 1000)
        assert found.is_cuda
        assert found.cpu().equal(function(edges, 1000))
    found = longest_path_length(inside.cuda(), batch=batch.cuda())
    assert found.cpu().equal(longest_path_length(inside, batch=batch))
    with pytest.raises(CycleError):
        topological_levels(torch.tensor([[0, 1], [1, 0]], device="cuda"))
