"""Padded batches: round sizes, and the same results."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from dagnn import DAGNN, FlatGraphs, FlatLoader, LevelSchedule, longest_path_length
from dagnn.graph.padding import (
    LEAST_FILLER,
    has_filler,
    room_for,
    round_up,
    sizes_of,
    tensors_of,
    with_tensors,
)
from dagnn.nn.readout import READOUTS
from tests.graph.strategies import dags


def data_set(shapes: list[Data]) -> FlatGraphs:
    graphs = []
    for i, shape in enumerate(shapes):
        n, e = shape.num_nodes, shape.num_edges
        generator = torch.Generator().manual_seed(i)
        graphs.append(
            Data(
                x=torch.randn(n, 5, generator=generator, dtype=torch.float64),
                edge_index=shape.edge_index,
                edge_type=torch.randint(2, (e,), generator=generator),
                y=torch.tensor([float(i)]),
                parent_index=torch.arange(n).clamp(min=1) - 1,
            )
        )
    return FlatGraphs.from_data_list(graphs)


# With a graph whose nodes and edges are not as many, so that attributes tell whose they are.
PATH = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
shapes = st.lists(dags(max_nodes=8), min_size=1, max_size=6).map(lambda some: [PATH, *some])


@given(st.integers(1, 10**7), st.sampled_from([1, 2, 4, 8]))
def test_round_up_is_the_least_round_number(size: int, parts: int) -> None:
    up = round_up(size, parts)
    assert size <= up <= size * (1 + 1 / parts) + 1
    assert round_up(up, parts) == up


@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 99))
def test_there_is_room_for_a_filler(nodes: int, edges: int, levels: int) -> None:
    room = room_for(nodes, edges, levels, nodes, nodes)
    assert room.nodes >= nodes + LEAST_FILLER
    assert room.edges >= edges
    assert room.levels >= max(levels, 2)


@given(shapes)
def test_structure(some: list[Data]) -> None:
    flat = data_set(some)
    indices = list(range(len(flat)))
    plain = flat.batch(indices, schedule=True)
    padded = flat.batch(indices, schedule=True, padded=True)
    nodes, edges, graphs = plain.num_nodes, plain.num_edges, plain.num_graphs
    assert padded.num_graphs == graphs + 1
    assert has_filler(padded)
    assert not has_filler(plain)
    assert padded.num_nodes == len(padded.x) == room_of(plain).nodes
    assert padded.num_edges == room_of(plain).edges
    assert padded.ptr.tolist() == [*plain.ptr.tolist(), padded.num_nodes]
    assert torch.equal(padded.edge_index[:, :edges], plain.edge_index)
    assert torch.equal(padded.batch[:nodes], plain.batch)
    assert (padded.batch[nodes:] == graphs).all()
    assert (padded.edge_index[:, edges:] >= nodes).all()
    assert torch.equal(padded.x[:nodes], plain.x)
    assert torch.equal(padded.parent_index[:nodes], plain.parent_index)
    assert (padded.parent_index[nodes:] == nodes).all()  # its own, and none of another graph
    assert torch.equal(padded.y, plain.y)  # the filler has no label
    # Its edges are spread: all nodes would wait for one that had most of them.
    degrees = padded.edge_index[1, edges:].bincount(minlength=padded.num_nodes)[nodes:]
    half = (padded.num_nodes - nodes) // 2
    assert degrees.max() <= -(-(padded.num_edges - edges) // half)
    with pytest.raises(RuntimeError, match="not created via"):
        padded.to_data_list()
    # Its levels are levels of all its edges.
    longest_path_length(padded.edge_index, padded.num_nodes)
    assert (padded.level[padded.edge_index[0]] < padded.level[padded.edge_index[1]]).all()
    reverse = padded.reverse_level
    assert (reverse[padded.edge_index[1]] < reverse[padded.edge_index[0]]).all()


def test_the_number_of_nodes_where_no_features_tell_it() -> None:
    flat = FlatGraphs.from_data_list([Data(edge_index=PATH.edge_index, num_nodes=3)] * 2)
    batch = flat.batch([0, 1], padded=True)
    assert "num_nodes" in batch
    assert batch.num_nodes == len(batch.batch) > 6


@given(shapes)
def test_the_schedule_is_that_of_the_graph(some: list[Data]) -> None:
    padded = data_set(some).batch(list(range(len(some))), schedule=True, padded=True)
    expected = LevelSchedule.from_edge_index(
        padded.edge_index, padded.num_nodes, padded.level, padded.reverse_level
    )
    found = padded.schedule
    for name in ("order", "rank", "pred_ptr", "pred", "pred_edge", "succ_ptr", "succ", "succ_slot"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    levels = expected.level_ptr.size(1)
    assert torch.equal(found.level_ptr[:, :levels], expected.level_ptr)
    assert (found.level_ptr[:, levels:] == padded.num_nodes).all()  # empty ones
    for name in ("targets", "sources"):
        some_nodes = getattr(expected, name)
        assert torch.equal(getattr(found, name)[: len(some_nodes)], some_nodes)
        assert (getattr(found, name)[len(some_nodes) :] == padded.num_nodes - 1).all()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("readout", READOUTS)
@given(shapes)
def test_results_and_gradients_are_the_same(backend: str, readout: str, some: list[Data]) -> None:
    flat = data_set(some)
    indices = list(range(len(flat)))
    torch.manual_seed(0)
    model = DAGNN(
        5, 4, 2, 3, bidirectional=True, edge_types=2, readout=readout, backend=backend
    ).double()
    slope = torch.randn(len(flat), 3, dtype=torch.float64)

    def run(padded: bool) -> tuple[Tensor, list[Tensor | None]]:
        out = model(flat.batch(indices, schedule=True, padded=padded))[: len(flat)]
        loss = (out * slope).sum()
        return out, list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))

    (expected, wanted), (found, gradients) = run(False), run(True)
    torch.testing.assert_close(found, expected)
    for a, b in zip(gradients, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


def test_few_sizes() -> None:
    """What padding is for: 40 random batches have few sizes, and batches without it many."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for _ in range(300):
        n = int(torch.randint(20, 120, (), generator=generator))
        parent = (torch.rand(n - 1, generator=generator) * torch.arange(1, n)).long()
        graphs.append(Data(edge_index=torch.stack([parent, torch.arange(1, n)]), num_nodes=n))
    flat = FlatGraphs.from_data_list(graphs)

    def sizes(padded: bool) -> set[Any]:
        loader = FlatLoader(flat, 20, shuffle=True, drop_last=True, padded=padded)
        return {sizes_of(batch) for _ in range(3) for batch in loader}

    assert len(sizes(padded=False)) > 40
    assert len(sizes(padded=True)) < 20


@pytest.mark.parametrize("schedule", [False, True])
def test_tensors_can_be_replaced(schedule: bool) -> None:
    batch = data_set([PATH, PATH]).batch([0, 1], schedule=schedule, padded=True)
    copies = [tensor.clone() for tensor in tensors_of(batch)]
    other = with_tensors(batch, copies)
    assert all(a is b for a, b in zip(tensors_of(other), copies, strict=True))
    assert other.num_graphs == batch.num_graphs == 3
    assert has_filler(other)
    assert ("schedule" in other) == schedule
    assert sizes_of(other) == sizes_of(batch)
    assert all(a is not b for a, b in zip(tensors_of(batch), copies, strict=True))


def test_graphs_without_edges_are_refused() -> None:
    lone = FlatGraphs.from_data_list([Data(edge_index=torch.empty(2, 0).long(), num_nodes=1)])
    with pytest.raises(ValueError, match="expected graphs with edges"):
        lone.batch([0], padded=True)


def test_ragged_attributes_are_refused_and_not_lost() -> None:
    graphs = [
        Data(x=torch.ones(3, 1), edge_index=PATH.edge_index, words=torch.arange(words))
        for words in (5, 4)
    ]
    flat = FlatGraphs.from_data_list(graphs)
    assert flat.batch([0, 1]).words.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    wanted = r"expected attributes of nodes, edges or graphs .* got 'words' .* \.without\('words'\)"
    with pytest.raises(ValueError, match=wanted):
        flat.batch([0, 1], padded=True)
    with pytest.raises(ValueError, match=wanted):
        next(iter(FlatLoader(flat, 2, padded=True, prefetch=1)))
    assert "x" in flat.without("words").batch([0, 1], padded=True)


def room_of(batch: Data) -> object:
    schedule = batch.schedule
    return room_for(
        schedule.num_nodes,
        schedule.num_edges,
        schedule.num_levels,
        len(schedule.targets),
        len(schedule.sources),
    )
