"""What surrounds the level loop: products, the order of inputs and outputs, buffers."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dagnn import LevelSchedule
from dagnn.ops import cpu, stack
from dagnn.ops.cpu_memory import LINE, aligned
from tests.nn.configurations import KITE

NODES, CHANNELS, HIDDEN = 7, 3, 4
EDGES = torch.tensor(KITE).t()
KINDS = [(a, c) for a in ("attention", "gated_sum") for c in ("gru", "linear")]
every_kind = pytest.mark.parametrize(("aggregator", "cell"), KINDS)


def make_graph() -> stack.Graph:
    schedule = LevelSchedule.from_edge_index(EDGES, NODES)
    return stack.Graph(*(getattr(schedule, name) for name in stack.Graph._fields))


def make_parameters(aggregator: str, cell: str, channels: int) -> list[Tensor]:
    shapes = {
        "gru": [(12, channels), (12, 4), (12,), (12,)],
        "linear": [(4, channels), (4, 4), (4,)],
        "attention": [(1, 4)],
        "gated_sum": [(4, 4), (4,), (4, 4)],
    }
    sizes = shapes[cell] + shapes[aggregator]
    return [torch.randn(2, *size, dtype=torch.float64) for size in sizes]


def forward(aggregator: str, cell: str, x: Tensor, save: bool, layers: int = 2) -> Any:
    graph = make_graph()
    torch.manual_seed(0)
    parameters = [
        make_parameters(aggregator, cell, HIDDEN if i else CHANNELS) for i in range(layers)
    ]
    scores = [torch.randn(2, EDGES.size(1), dtype=torch.float64) for _ in range(layers)]
    given = scores if aggregator == "attention" else [None] * layers
    out = stack.forward(cpu, aggregator, cell, x, graph, parameters, given, "fp32", save)
    return *out, graph, parameters, given


def features() -> Tensor:
    return torch.randn(NODES, CHANNELS, dtype=torch.float64)


@every_kind
def test_shapes_of_what_is_saved(aggregator: str, cell: str) -> None:
    states, saved, *_ = forward(aggregator, cell, features(), save=True)
    assert [h.shape for h in states] == [(2, NODES, HIDDEN)] * 2
    for keep in saved:
        assert (keep.gates is None) == (cell == "linear")
        if keep.gates is not None:
            assert keep.gates.shape == (2, NODES, stack.gates_width(HIDDEN))
        assert keep.message.shape == (2, NODES, HIDDEN)
        wide = (2, EDGES.size(1)) if aggregator == "attention" else (2, NODES, 2 * HIDDEN)
        assert keep.aggregate.shape == wide


@every_kind
def test_inference_saves_nothing(aggregator: str, cell: str) -> None:
    x = features()
    states, saved, *_ = forward(aggregator, cell, x, save=False)
    assert saved == []
    trained, *_ = forward(aggregator, cell, x, save=True)
    assert all(torch.equal(a, b) for a, b in zip(states, trained, strict=True))


@every_kind
def test_inputs_in_the_order_of_computation(aggregator: str, cell: str) -> None:
    """[S, N, C], as a layer above others has them, instead of [N, C]."""
    x = features()
    expected, saved, graph, parameters, scores = forward(aggregator, cell, x, save=True)
    level_major = x[graph.order]
    found, *_ = forward(aggregator, cell, level_major, save=True)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))

    grads = [torch.randn_like(h) for h in expected]
    grad_x, grad_level_major = (
        stack.backward(
            cpu, aggregator, cell, grads, given, expected, saved, graph, parameters, scores,
            "fp32", True,
        )[0]
        for given in (x, level_major)
    )  # fmt: skip
    assert grad_level_major.shape == level_major.shape
    by_node = [grad_level_major[d][graph.rank[d]] for d in range(2)]
    assert_close(grad_x, by_node[0] + by_node[1])


@every_kind
def test_given_gradients_are_not_changed(aggregator: str, cell: str) -> None:
    x = features()
    states, saved, graph, parameters, scores = forward(aggregator, cell, x, save=True)
    grads = [torch.randn_like(h) for h in states]
    kept = [tensor for keep in saved for tensor in keep if tensor is not None]
    before = [tensor.clone() for tensor in (*grads, *states, *kept)]
    stack.backward(
        cpu, aggregator, cell, grads, x, states, saved, graph, parameters, scores, "fp32", False
    )
    for tensor, copy in zip((*grads, *states, *kept), before, strict=True):
        assert torch.equal(tensor, copy)


@pytest.mark.parametrize("hidden", [1, 4, 15, 16, 17])
def test_both_products_of_a_gru_begin_with_a_cache_line(hidden: int) -> None:
    """Blocks do not overlap, and gaps have neither weight nor bias."""
    weights = [torch.rand(2, 3 * hidden, size) + 1 for size in (CHANNELS, hidden)]
    biases = [torch.rand(2, 3 * hidden) + 1 for _ in range(2)]
    parameters = [*weights, *biases, torch.rand(2, 1, hidden)]
    packed = stack._pack("attention", "gru", parameters, None)
    r, width = aligned(hidden), stack.gates_width(hidden)
    assert r % LINE == width % LINE == 0
    used = [*range(hidden), *range(r, r + 3 * hidden)]
    bias = packed.layer.bias
    assert bias.shape == (2, width)
    assert bias[0].nonzero().flatten().tolist() == used
    weight = packed.input_weight
    assert weight.shape == (2, r + 2 * hidden, CHANNELS)
    assert weight[0].any(1).nonzero().flatten().tolist() == used[: 3 * hidden]
    assert_close(weight[:, r:], weights[0][:, : 2 * hidden])
    assert_close(bias[:, r : r + 2 * hidden], (biases[0] + biases[1])[:, : 2 * hidden])
