"""Every combination of aggregator and cell, and graphs to run them on."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn import DAGNN

IN, HIDDEN, EDGE_TYPES, EDGE_CHANNELS = 3, 4, 3, 2

AGGREGATORS: dict[str, dict[str, Any]] = {
    "attention": {"aggregator": "attention"},
    "attention-types": {"aggregator": "attention", "edge_types": EDGE_TYPES},
    "attention-features": {"aggregator": "attention", "edge_channels": EDGE_CHANNELS},
    "attention-tied": {
        "aggregator": "attention",
        "edge_types": EDGE_TYPES,
        "edge_channels": EDGE_CHANNELS,
        "tie_edge_weight": True,
    },
    "dot_attention": {"aggregator": "dot_attention", "edge_types": EDGE_TYPES},
    "dynamic_attention": {"aggregator": "dynamic_attention", "edge_channels": EDGE_CHANNELS},
    "gated_sum": {"aggregator": "gated_sum"},
    "gated_sum-edges": {
        "aggregator": "gated_sum",
        "edge_types": EDGE_TYPES,
        "edge_channels": EDGE_CHANNELS,
    },
    "gated_edge_sum": {"aggregator": "gated_edge_sum", "edge_types": EDGE_TYPES},
    "sum": {"aggregator": "sum"},
    "mean": {"aggregator": "mean"},
    "max": {"aggregator": "max"},
    "mul": {"aggregator": "mul"},
    "epsilon_sum": {"aggregator": "epsilon_sum"},
    "concat": {"aggregator": "concat", "edge_types": EDGE_TYPES},
}
CELLS = ("gru", "lstm", "linear", "tanh")
READOUTS = ("max", "mean", "sum", "attention", "gated_sum")
# A GRU's state is as wide as its message, so concatenated states do not fit it.
COMBINATIONS = [(a, c) for a in AGGREGATORS for c in CELLS if (a, c) != ("concat", "gru")]


def make_model(aggregator: str, cell: str = "gru", **options: Any) -> DAGNN:
    """A small model in float64, by the names above."""
    settings = {"num_layers": 2, "backend": "reference", **AGGREGATORS[aggregator], **options}
    model = DAGNN(IN, HIDDEN, cell=cell, **settings).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("epsilon"):
                parameter.fill_(0.3)  # zero, where it starts, would hide it
    return model


def make_graph(edges: list[tuple[int, int]], num_nodes: int) -> Data:
    """A graph with random features, edge types and edge features. Every edge has its own type
    among those of its target, as ordered predecessors need it."""
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    seen: dict[int, int] = {}
    types = []
    for _, v in edges:
        types.append(seen.get(v, 0) % EDGE_TYPES)
        seen[v] = seen.get(v, 0) + 1
    return Data(
        x=torch.randn(num_nodes, IN, dtype=torch.float64),
        edge_index=edge_index,
        edge_type=torch.tensor(types, dtype=torch.long),
        edge_attr=torch.randn(len(edges), EDGE_CHANNELS, dtype=torch.float64),
    )


def relabel(data: Data) -> tuple[Data, Tensor, Tensor]:
    """The same graph with nodes and edges in another order, and the new names of both."""
    order, edge_order = torch.randperm(data.num_nodes), torch.randperm(data.num_edges)
    if data.get("batch") is not None:  # its graphs stay side by side
        order = order[data.batch[order].argsort(stable=True)]
    name, edge_name = order.argsort(), edge_order.argsort()
    other = copy.copy(data)
    other.edge_index = name[data.edge_index][:, edge_order]
    for key, value in data:
        if key == "edge_index":
            continue
        if data.is_node_attr(key):
            other[key] = value.detach()[order]
        elif data.is_edge_attr(key):
            other[key] = value.detach()[edge_order]
    return other, name, edge_name


# Nodes out of order, edges that skip levels, two targets, two sources and an isolated node.
KITE = [(5, 1), (5, 0), (1, 0), (0, 3), (1, 3), (2, 3), (2, 4)]


def kite() -> Data:
    return make_graph(KITE, 7)


def example_graphs() -> list[Data]:
    """Also an empty graph first, inside and last, one node, no edges, and a doubled edge."""
    return [
        make_graph([], 0),
        kite(),
        make_graph([], 1),
        make_graph([], 0),
        make_graph([], 2),
        make_graph([(1, 0), (1, 0), (2, 1)], 3),
        make_graph([], 0),
    ]


def example_batch() -> Batch:
    return Batch.from_data_list(example_graphs())


def gradients(out: Tensor, model: DAGNN, *inputs: Tensor) -> list[Tensor]:
    """Gradients of a fixed projection of the output; zero where there is none."""
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    variables = [*inputs, *model.parameters()]
    return list(torch.autograd.grad((out * weight).sum(), variables, materialize_grads=True))
