"""The level loop, with aggregators and cells so simple that the result is known."""

import shutil
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, LevelSchedule, longest_path_length, topological_levels
from dagnn.nn.aggregators import make_aggregator
from dagnn.nn.cells import make_cell
from dagnn.ops.reference import layer_states
from tests.nn.configurations import gradients

EDGES = torch.tensor([[5, 5, 1, 0, 1, 2, 2], [1, 0, 0, 3, 3, 3, 4]])


class AddMessage(nn.Module):
    """h = x + m: with a sum, h counts the paths that end in a node."""

    hidden_size = 1

    def forward(self, x: Tensor, message: Tensor) -> Tensor:
        return x + message


def states(edge_index: Tensor, x: Tensor, name: str, levels: Tensor | None = None) -> Tensor:
    sweep = LevelSchedule.from_edge_index(edge_index, len(x), levels).forward
    aggregator = make_aggregator(name, x.size(1), x.size(1))
    return layer_states(x[sweep.order], sweep, aggregator, AddMessage())[sweep.rank]


def test_a_sum_counts_paths() -> None:
    # Paths that end in 3: from 0, 1 and 2 on, and each of theirs.
    assert states(EDGES, torch.ones(7, 1), "sum").flatten().tolist() == [4, 2, 1, 8, 2, 1, 1]


def test_a_maximum_gives_levels() -> None:
    longest = states(EDGES, torch.ones(7, 1), "max").flatten() - 1
    assert torch.equal(longest, topological_levels(EDGES, 7).float())


def test_any_order_that_follows_the_edges_will_do() -> None:
    """Levels may be late and leave gaps."""
    levels = topological_levels(EDGES, 7)
    late = 3 * levels + torch.tensor([0, 1, 2, 5, 4, 0, 9])
    x = torch.randn(7, 1)
    assert_close(states(EDGES, x, "sum", late), states(EDGES, x, "sum"))


@pytest.mark.parametrize("num_nodes", [0, 1, 4])
def test_without_edges(num_nodes: int) -> None:
    x = torch.randn(num_nodes, 1)
    assert torch.equal(states(EDGES[:, :0], x, "sum"), x)


def test_edge_values_travel_with_their_edges() -> None:
    """Concatenated predecessors are known by the edge's type, however edges are ordered."""
    order = torch.tensor([3, 6, 0, 5, 1, 4, 2])
    place = torch.tensor([0, 1, 0, 1, 0, 2, 2])
    aggregator, cell = make_aggregator("concat", 2, 4, edge_types=3), make_cell("linear", 2, 12, 4)
    x = torch.randn(7, 2)
    found = []
    for edges, types in ((EDGES, place), (EDGES[:, order], place[order])):
        sweep = LevelSchedule.from_edge_index(edges, 7).forward
        h = layer_states(x[sweep.order], sweep, aggregator, cell, types[sweep.pred_edge])
        found.append(h[sweep.rank])
    assert_close(*found)
    h, expected = found[0], cell(x[3:4], torch.cat([found[0][1], found[0][0], found[0][2]])[None])
    assert_close(h[3:4], expected)


def test_one_loop_serves_a_batch() -> None:
    graph = Data(x=torch.randn(7, 1), edge_index=EDGES)
    batch = Batch.from_data_list([graph, graph, graph])
    one = states(EDGES, graph.x, "sum")
    assert_close(states(batch.edge_index, batch.x, "sum"), one.repeat(3, 1))


def chained_levels(*widths: int) -> Tensor:
    """Levels of these widths; every node hears of two of the level before it."""
    edges, first = [], 0
    for above, width in pairwise(widths):
        low = first + above
        edges += [(first + (i + k) % above, low + i) for i in range(width) for k in (0, 1)]
        first = low
    return torch.tensor(edges).t()


# Widths of levels: depths that are equal and that differ, levels that start at the same place.
WIDTHS = [(3, 2), (3, 4), (5, 4), (2, 2, 3), (2, 3, 3), (2, 2, 4, 2), (3, 2)]


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor", marks=pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
        ),
    ],
)
@pytest.mark.parametrize(("aggregator", "cell"), [("sum", "lstm"), ("attention", "gru")])
def test_compile(aggregator: str, cell: str, backend: str) -> None:
    """Outputs and gradients, on one graph after another."""
    torch.compiler.reset()
    options: dict[str, Any] = {"aggregator": aggregator, "cell": cell, "bidirectional": True}
    model = DAGNN(5, 4, 2, 3, backend="reference", **options)
    compiled = torch.compile(model, backend=backend)
    for widths in WIDTHS:
        edges, x = chained_levels(*widths), torch.randn(sum(widths), 5, requires_grad=True)
        assert int(longest_path_length(edges)) == len(widths)
        out, expected = compiled(x, edges), model(x, edges)
        assert_close(out, expected)
        for a, b in zip(gradients(out, model, x), gradients(expected, model, x), strict=True):
            assert_close(a, b)


def test_nothing_is_compiled_anew_for_another_depth() -> None:
    torch.compiler.reset()
    compiled = []

    def count(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        compiled.append(graph)
        return graph.forward

    model = torch.compile(DAGNN(5, 4, 1, 3, aggregator="sum", cell="lstm"), backend=count)
    counts = []
    for widths in [(3, 2), (4, 4, 3), (4, 5), (2, 3, 5, 3), (5, 6, 2, 2, 3)]:
        model(torch.randn(sum(widths), 5), chained_levels(*widths))
        counts.append(len(compiled))
    assert counts[1:] == [counts[1]] * 4  # the second graph tells torch.compile that sizes vary
