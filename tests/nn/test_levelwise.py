"""Convolutions of PyTorch Geometric along the order of a DAG, and critical paths."""

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    MessagePassing,
    ResGatedGraphConv,
    SAGEConv,
    TransformerConv,
)

from dagnn import LevelSchedule, topological_levels
from dagnn.nn.levelwise import LevelwiseConv, MaxPlusConv
from tests.graph.strategies import dags

WIDTH = 4
EDGES = torch.tensor([[5, 5, 1, 0, 1, 2, 2, 2], [1, 0, 0, 3, 3, 3, 4, 4]])  # the last one twice
NUM_NODES = 7
ATTR = torch.randn(8, 2, generator=torch.Generator().manual_seed(1)).double()
WEIGHT = torch.rand(8, generator=torch.Generator().manual_seed(2)).double()


def features(width: int = WIDTH) -> Tensor:
    return torch.randn(NUM_NODES, width, dtype=torch.float64, requires_grad=True)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, WIDTH))


PLAIN = {
    "gcn": (lambda: GCNConv(WIDTH, WIDTH), {}),
    "gcn-weight": (lambda: GCNConv(WIDTH, WIDTH), {"edge_weight": WEIGHT}),
    "gat": (lambda: GATConv(WIDTH, WIDTH), {}),
    "gat-heads": (lambda: GATConv(WIDTH, 2, heads=2), {}),
    "gat-attr": (lambda: GATConv(WIDTH, WIDTH, edge_dim=2), {"edge_attr": ATTR}),
    "gatv2": (lambda: GATv2Conv(WIDTH, WIDTH, add_self_loops=False), {}),
    "sage": (lambda: SAGEConv(WIDTH, WIDTH), {}),
    "gin": (lambda: GINConv(mlp(), train_eps=True), {}),
    "gine": (lambda: GINEConv(mlp(), edge_dim=2), {"edge_attr": ATTR}),
    "graph": (lambda: GraphConv(WIDTH, WIDTH), {"edge_weight": WEIGHT}),
    "transformer": (lambda: TransformerConv(WIDTH, WIDTH, edge_dim=2), {"edge_attr": ATTR}),
    "max-plus": (MaxPlusConv, {"edge_weight": WEIGHT}),
}
BIPARTITE = {
    "sage": (lambda: SAGEConv((WIDTH, 3), WIDTH), {}),
    "gat": (lambda: GATConv((WIDTH, 3), 2, heads=2, add_self_loops=False), {}),
    "gat-attr": (
        lambda: GATConv((WIDTH, 3), WIDTH, edge_dim=2, add_self_loops=False),
        {"edge_attr": ATTR},
    ),
    "graph": (lambda: GraphConv((WIDTH, 3), WIDTH), {"edge_weight": WEIGHT}),
    "res-gated": (lambda: ResGatedGraphConv((WIDTH, 3), WIDTH), {}),
}


def node_by_node(
    conv: MessagePassing, x: Tensor, arguments: dict[str, Tensor], bipartite: bool
) -> Tensor:
    """The definition: one call per node, on the node and its updated predecessors."""
    done: dict[int, Tensor] = {}

    def state(v: int) -> Tensor:
        if v not in done:
            slots = (EDGES[1] == v).nonzero().view(-1)
            senders = sorted(set(EDGES[0, slots].tolist()))
            h = torch.stack([state(u) for u in senders]) if senders else x.new_zeros(0, WIDTH)
            row = torch.tensor([senders.index(u) for u in EDGES[0, slots].tolist()]).long()
            here = {name: value[slots] for name, value in arguments.items()}
            if bipartite:
                edge_index = torch.stack([row, torch.zeros_like(row)])
                done[v] = conv((h, x[v : v + 1]), edge_index, **here)[0]
            else:
                edge_index = torch.stack([row, torch.full_like(row, len(senders))])
                done[v] = conv(torch.cat([h, x[v : v + 1]]), edge_index, **here)[-1]
        return done[v]

    return torch.stack([state(v) for v in range(len(x))])


@pytest.mark.parametrize(
    ("name", "bipartite"), [(n, False) for n in PLAIN] + [(n, True) for n in BIPARTITE]
)
def test_equals_a_call_per_node(name: str, bipartite: bool) -> None:
    make, arguments = (BIPARTITE if bipartite else PLAIN)[name]
    conv = make().double()
    x = features(3 if bipartite else WIDTH)
    out = LevelwiseConv(conv)(x, EDGES, **arguments)
    expected = node_by_node(conv, x, arguments, bipartite)
    assert_close(out, expected)
    variables = [x, *conv.parameters()]
    weight = torch.randn_like(out)
    grads = [
        torch.autograd.grad((o * weight).sum(), variables, materialize_grads=True)
        for o in (out, expected)
    ]
    for g, g_expected in zip(*grads, strict=True):
        assert_close(g, g_expected)


@pytest.mark.parametrize("name", PLAIN)
def test_level_zero_is_the_convolution_without_edges(name: str) -> None:
    make, arguments = PLAIN[name]
    conv = make().double()
    x = features()
    out = LevelwiseConv(conv)(x, EDGES, **arguments)
    none = {key: value[:0] for key, value in arguments.items()}
    sources = topological_levels(EDGES, NUM_NODES) == 0
    assert_close(out[sources], conv(x[sources], EDGES[:, :0], **none))


def test_gcn_counts_degrees_in_the_level() -> None:
    """As documented: 1 / sqrt(1 + predecessors) on edges, 1 / (1 + predecessors) on oneself."""
    conv = GCNConv(WIDTH, WIDTH).double()
    x = features()
    h = LevelwiseConv(conv)(x, EDGES)
    lin = conv.lin
    expected = (lin(h[0]) + lin(h[1]) + lin(h[2])) / 2 + lin(x[3]) / 4 + conv.bias
    assert_close(h[3], expected)


def test_one_call_carries_information_along_the_whole_path() -> None:
    chain = torch.stack([torch.arange(9), torch.arange(1, 10)])
    x = torch.randn(10, WIDTH, dtype=torch.float64, requires_grad=True)
    conv = SAGEConv(WIDTH, WIDTH).double()
    (once,) = torch.autograd.grad(conv(x, chain)[9].sum(), x)
    (along,) = torch.autograd.grad(LevelwiseConv(conv)(x, chain)[9].sum(), x)
    assert (once.abs().sum(1) > 0).sum() == 2
    assert bool((along.abs().sum(1) > 0).all())


def test_schedule_and_direction() -> None:
    conv = LevelwiseConv(GATConv(WIDTH, WIDTH)).double()
    x = features()
    schedule = LevelSchedule.from_edge_index(EDGES, NUM_NODES)
    assert torch.equal(conv(x, schedule=schedule), conv(x, EDGES))
    assert_close(conv(x, schedule=schedule.flip()), conv(x, EDGES.flip(0)))


def test_gradcheck() -> None:
    conv = LevelwiseConv(GATConv(WIDTH, WIDTH, edge_dim=2)).double()
    inputs = (features(), ATTR.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda x, e: conv(x, EDGES, edge_attr=e), inputs)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_without_edges(name: str, num_nodes: int) -> None:
    make, arguments = PLAIN[name]
    none = {key: value[:0] for key, value in arguments.items()}
    x = torch.randn(num_nodes, WIDTH, dtype=torch.float64)
    assert LevelwiseConv(make().double())(x, EDGES[:, :0], **none).shape == (num_nodes, WIDTH)


class Counting(MaxPlusConv):
    """Counts calls, and the rows and edges it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.rows = self.edges = 0

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.calls += 1
        self.rows += len(x)
        self.edges += edge_index.size(1)
        return super().forward(x, edge_index, edge_weight)


@given(dags(max_nodes=20))
@settings(max_examples=30)
def test_work_is_linear_and_one_call_per_level(data: Data) -> None:
    conv = Counting()
    LevelwiseConv(conv)(torch.zeros(data.num_nodes, 1), data.edge_index)
    levels = topological_levels(data.edge_index, data.num_nodes)
    assert conv.calls == (int(levels.max()) + 1 if len(levels) else 0)
    assert conv.edges == data.num_edges
    assert conv.rows <= data.num_nodes + data.num_edges


@given(dags(max_nodes=12), st.integers(0, 1000))
@settings(max_examples=50)
def test_max_plus_equals_the_longest_path(data: Data, seed: int) -> None:
    """By brute force over all paths from a source, and by networkx; also negative weights."""
    generator = torch.Generator().manual_seed(seed)
    n, edges = data.num_nodes, data.edge_index.t().tolist()
    duration = torch.randint(-3, 9, (n, 2), generator=generator).double()
    delay = torch.randint(-3, 9, (len(edges),), generator=generator).double()
    finish = LevelwiseConv(MaxPlusConv())(duration, data.edge_index, edge_weight=delay)

    def longest(v: int, channel: int) -> float:
        before = [longest(u, channel) + float(d)
                  for (u, w), d in zip(edges, delay, strict=True) if w == v]  # fmt: skip
        return float(duration[v, channel]) + (max(before) if before else 0.0)

    assert finish.tolist() == [[longest(v, 0), longest(v, 1)] for v in range(n)]

    level = LevelwiseConv(MaxPlusConv())(torch.ones(n, 1), data.edge_index)
    assert torch.equal(level.view(-1) - 1, topological_levels(data.edge_index, n).float())

    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for (u, v), weight in zip(edges, delay.abs().tolist(), strict=True):
        weight = max(weight, graph.edges[u, v]["weight"] if graph.has_edge(u, v) else 0)
        graph.add_edge(u, v, weight=weight)
    wait = LevelwiseConv(MaxPlusConv())(
        torch.zeros(n, 1).double(), data.edge_index, edge_weight=delay.abs()
    )
    assert (float(wait.max()) if n else 0) == nx.dag_longest_path_length(graph)


def test_max_plus_gradient_is_the_critical_path() -> None:
    duration = torch.tensor([3.0, 2.0, 4.0, 1.0, 5.0]).view(-1, 1).requires_grad_()
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
    delay = torch.tensor([0.0, 0.0, 10.0, 0.0], requires_grad=True)
    finish = LevelwiseConv(MaxPlusConv())(duration, edges, edge_weight=delay)
    start = (finish - duration).flatten().tolist()
    assert start == [0.0, 3.0, 3.0, 15.0, 0.0]
    finish.max().backward()
    assert duration.grad.flatten().tolist() == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert delay.grad.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_a_schedule_is_of_the_edges_beside_it() -> None:
    conv, x = LevelwiseConv(GATConv(WIDTH, WIDTH)), features().float()
    schedule = LevelSchedule.from_edge_index(EDGES, len(x))
    right = conv(x, EDGES)
    assert torch.equal(conv(x, EDGES, schedule=schedule), right)
    assert torch.equal(conv(x, EDGES, schedule=schedule.flip()), conv(x, EDGES.flip(0)))
    others = EDGES.clone()
    others[:, 0] = torch.tensor([len(x) - 1, 0])
    for wrong in (others, EDGES[:, 1:]):
        with pytest.raises(ValueError, match="the schedule of this very graph"):
            conv(x, wrong, schedule=schedule)


def test_second_derivatives_are_refused() -> None:
    """Rather than be zero: the slope of a sum is constant, that of what is summed is not."""
    x = features().float().requires_grad_()
    out = LevelwiseConv(GATConv(WIDTH, WIDTH))(x, EDGES)
    with pytest.raises(RuntimeError, match="LevelwiseConv have first derivatives only"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


@pytest.mark.parametrize("wide", [False, True])
def test_edge_weights_may_differ_by_channel(wide: bool) -> None:
    weight = torch.tensor([[1.0, 2.0]]) if wide else torch.tensor([3.0])
    out = LevelwiseConv(MaxPlusConv())(
        torch.zeros(2, 2), torch.tensor([[0], [1]]), edge_weight=weight
    )
    assert out[1].tolist() == ([1.0, 2.0] if wide else [3.0, 3.0])


def test_repr_reset_and_state_dict() -> None:
    conv = LevelwiseConv(GATConv(WIDTH, WIDTH))
    assert "GATConv(4, 4, heads=1)" in repr(conv)
    before = conv.conv.lin.weight.clone()
    conv.reset_parameters()
    assert not torch.equal(conv.conv.lin.weight, before)
    other = LevelwiseConv(GATConv(WIDTH, WIDTH))
    other.load_state_dict(conv.state_dict())
    x = features().float()
    assert torch.equal(conv(x, EDGES), other(x, EDGES))


class Pair(MaxPlusConv):
    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return x, x


@pytest.mark.parametrize(
    ("conv", "error", "message"),
    [
        (lambda: nn.Linear(4, 4), TypeError, "MessagePassing layer, got Linear"),
        (lambda: SAGEConv(4, 4, flow="target_to_source"), ValueError, "got 'target_to_source'"),
        (
            lambda: GCNConv(4, 4, cached=True),
            ValueError,
            "expected a convolution with cached=False",
        ),
        (lambda: GATConv((4, 3), 4), ValueError, r"add_self_loops=False .*in_channels=\(4, 3\)"),
        (lambda: SAGEConv((-1, -1), 4), ValueError, "width of the states as the first.*got -1"),
    ],
)
def test_bad_convolutions(conv: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LevelwiseConv(conv())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("conv", "x", "arguments", "error", "message"),
    [
        (SAGEConv(4, 4), torch.zeros(7), {}, ValueError, r"\[num_nodes, C\], got \[7\]"),
        (SAGEConv(4, 4), torch.zeros(7, 3), {}, ValueError, r"\[num_nodes, 4\], got \[7, 3\]"),
        (SAGEConv((4, 3), 4), torch.zeros(7, 4), {}, ValueError, r"\[num_nodes, 3\], got \[7, 4\]"),
        (SAGEConv(4, 5), torch.zeros(7, 4), {}, ValueError, r"to 4 channels.*got .*shape \[3, 5\]"),
        (SAGEConv((4, 3), 5), torch.zeros(7, 3), {}, ValueError, "to 4 channels, as wide as what"),
        (Pair(), torch.zeros(7, 4), {}, TypeError, "that returns one tensor, got tuple"),
        (SAGEConv(4, 4), torch.zeros(7, 4), {"edge_index": None}, ValueError, "got neither"),
        (SAGEConv(4, 4), torch.zeros(6, 4), {"schedule": 7}, ValueError, "all 7 nodes.*got 6 rows"),
        (GraphConv(4, 4), torch.zeros(7, 4), {"edge_weight": torch.zeros(3)}, ValueError,
         r"edge_weight with one row for each of the 8 edges, got shape \[3\]"),
        (GraphConv(4, 4), torch.zeros(7, 4), {"edge_weight": torch.zeros(8, device="meta")},
         ValueError, "on one device.*edge_weight on meta"),
    ],
)  # fmt: skip
def test_bad_input(
    conv: MessagePassing, x: Tensor, arguments: dict, error: type[Exception], message: str
) -> None:
    if "schedule" in arguments:
        arguments = {"schedule": LevelSchedule.from_edge_index(EDGES, arguments["schedule"])}
    with pytest.raises(error, match=message):
        LevelwiseConv(conv)(x, **{"edge_index": EDGES, **arguments})
