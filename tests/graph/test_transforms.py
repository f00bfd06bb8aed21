import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from dagnn import AddLevels, CycleError, topological_levels
from tests.graph.strategies import dags


@given(dags())
def test_stores_the_levels_of_both_directions(data: Data) -> None:
    out = AddLevels()(data)
    assert out.level.equal(topological_levels(data.edge_index, data.num_nodes))
    assert out.reverse_level.equal(topological_levels(data.edge_index.flip(0), data.num_nodes))


def test_leaves_its_input_alone() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    AddLevels()(data)
    assert set(data.keys()) == {"edge_index", "num_nodes"}


@given(st.lists(dags(max_nodes=6), min_size=1, max_size=5))
def test_levels_survive_batching(graphs: list[Data]) -> None:
    batch = Batch.from_data_list([AddLevels()(g) for g in graphs])
    assert batch.level.equal(topological_levels(batch.edge_index, batch.num_nodes))
    assert batch.reverse_level.equal(topological_levels(batch.edge_index.flip(0), batch.num_nodes))
    for graph, part in zip(graphs, batch.to_data_list(), strict=True):
        assert part.level.equal(topological_levels(graph.edge_index, graph.num_nodes))


def test_levels_survive_a_loader() -> None:
    graphs = [Data(edge_index=torch.tensor([[i], [i + 1]]), num_nodes=i + 3) for i in range(4)]
    (batch,) = DataLoader([AddLevels()(g) for g in graphs], batch_size=4)
    assert batch.level.equal(topological_levels(batch.edge_index, batch.num_nodes))


def test_bad_graphs() -> None:
    with pytest.raises(CycleError, match="0 -> 1 -> 0"):
        AddLevels()(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2))
    with pytest.raises(TypeError, match="got NoneType"):
        AddLevels()(Data(num_nodes=2))
    with pytest.raises(ValueError, match="got 5"):
        AddLevels()(Data(edge_index=torch.tensor([[0], [5]]), num_nodes=2))


def test_repr() -> None:
    assert repr(AddLevels()) == "AddLevels()"
