"""The baselines' layers against loops over neighbours."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    ASAPooling,
    GATConv,
    GraphConv,
    SAGPooling,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.utils import degree, scatter, to_undirected

from dagnn.nn.mpnn import GGNN, MPNN, BagOfNodes, PoolingMPNN
from dagnn.nn.mpnn_convs import GATLayer, GCNLayer, GINLayer, TwoWayEdges, make_conv

C = 8
EDGES = torch.tensor([[0, 0, 1, 4, 4], [1, 2, 2, 5, 6]])
TYPES = torch.tensor([0, 0, 1, 0, 1])
BATCH = torch.tensor([0, 0, 0, 0, 1, 1, 1])  # node 3 has no neighbour
N, G = 7, 2


def neighbours(v: int) -> list[tuple[int, list[float]]]:
    """The neighbours of a node, and the bits (type, direction) of the edges that lead from them."""
    edges = list(zip(*EDGES.tolist(), TYPES.tolist(), strict=True))
    along = [(u, [float(t), 0.0]) for u, w, t in edges if w == v]
    against = [(w, [float(t), 1.0]) for u, w, t in edges if u == v]
    return along + against


@pytest.fixture
def edges() -> TwoWayEdges:
    return TwoWayEdges.of(EDGES, TYPES, N)


def test_inverse_edges(edges: TwoWayEdges) -> None:
    assert edges.source.tolist() == [0, 0, 1, 4, 4, 1, 2, 2, 5, 6]
    assert edges.target.tolist() == [1, 2, 2, 5, 6, 0, 0, 1, 4, 4]
    assert edges.kind.tolist() == [0, 0, 2, 0, 2, 1, 1, 3, 1, 3]
    assert edges.degree.tolist() == [len(neighbours(v)) + 1 for v in range(N)]


def test_gcn(edges: TwoWayEdges) -> None:
    layer, x = GCNLayer(C), torch.randn(N, C)
    h, degree = layer.lin(x), [len(neighbours(v)) + 1 for v in range(N)]
    expected = []
    for v in range(N):
        out = (h[v] + layer.root.weight[0]).relu() / degree[v]
        for u, bits in neighbours(v):
            message = (h[u] + layer.messages.lin(torch.tensor(bits))).relu()
            out = out + message / (degree[u] * degree[v]) ** 0.5
        expected.append(out)
    assert torch.allclose(layer(x, edges), torch.stack(expected), atol=1e-6)


def test_gin(edges: TwoWayEdges) -> None:
    layer, x = GINLayer(C).eval(), torch.randn(N, C)
    with torch.no_grad():
        layer.eps.fill_(0.3)
    expected = []
    for v in range(N):
        out = 1.3 * x[v]
        for u, bits in neighbours(v):
            out = out + (x[u] + layer.messages.lin(torch.tensor(bits))).relu()
        expected.append(layer.mlp(out.unsqueeze(0))[0])
    assert torch.allclose(layer(x, edges), torch.stack(expected), atol=1e-6)


@pytest.mark.parametrize("half", [False, True])
def test_gat_is_pygs_with_self_loops(edges: TwoWayEdges, half: bool) -> None:
    layer, theirs = GATLayer(C), GATConv(C, C // 4, heads=4, edge_dim=2)
    theirs.load_state_dict(layer.conv.state_dict())
    x, slope = torch.randn(N, C), torch.randn(N, C)
    ends = torch.stack([edges.source, edges.target])
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found, expected = layer(x, edges.with_loops()), theirs(x, ends, edges.bits)
    torch.testing.assert_close(found, expected)
    gradients = [
        torch.autograd.grad((out * slope).sum(), list(model.parameters()))
        for out, model in ((found, layer), (expected, theirs))
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_gat_as_a_network_has_them_too(edges: TwoWayEdges) -> None:
    model, theirs = MPNN(C, 2, "gat").eval(), GATConv(C, C // 4, heads=4, edge_dim=2)
    ends, h = torch.stack([edges.source, edges.target]), torch.randn(N, C)
    found = model(h, EDGES, TYPES, BATCH, G)
    for layer, norm, is_last in zip(model.convs, model.norms, (False, True), strict=True):
        theirs.load_state_dict(layer.conv.state_dict())
        h = norm(theirs(h, ends, edges.bits))
        h = h if is_last else h.relu()
    torch.testing.assert_close(found, torch.stack([h[g == BATCH].mean(0) for g in range(G)]))


def random_batch() -> tuple[Tensor, Tensor, Tensor, int]:
    """DAGs of unequal sizes, one of them a node: edges, types, the batch vector, their number."""
    sizes = torch.tensor([9, 1, 14, 5])
    batch = torch.arange(len(sizes)).repeat_interleave(sizes)
    pairs = torch.triu_indices(len(batch), len(batch), offset=1)
    drawn = (batch[pairs[0]] == batch[pairs[1]]) & (torch.rand(pairs.size(1)) < 0.3)
    edge_index = pairs[:, drawn]
    return edge_index, torch.randint(2, edge_index.shape[1:]), batch, len(sizes)


def assert_like(found: Tensor, expected: Tensor, x: Tensor, one: nn.Module, two: nn.Module) -> None:
    """Outputs of two models, and the gradients of a fixed projection."""
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    slope = torch.linspace(-1, 2, found.numel()).view_as(found)
    gradients = [
        torch.autograd.grad((out * slope).sum(), [x, *of.parameters()], materialize_grads=True)
        for out, of in ((found, one), (expected, two))
    ]
    names = ["x", *dict(one.named_parameters())]
    for name, a, b in zip(names, *gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5, msg=name)


def test_ggnn() -> None:
    model, x = GGNN(C, num_layers=2), torch.randn(N, C)
    weights = model.lin.weight.view(4, C, C)
    biases = model.lin.bias.view(4, C)
    h = x
    for _ in range(2):
        total = torch.zeros(N, C)
        for v in range(N):
            for u, (kind, direction) in neighbours(v):
                k = int(2 * kind + direction)
                total[v] = total[v] + weights[k] @ h[u] + biases[k]
        h = model.cell(total, h)
    joined = torch.cat([h, x], 1)
    rows = model.gate(joined).sigmoid() * model.map(joined).tanh()
    expected = torch.stack([rows[:4].sum(0), rows[4:].sum(0)])
    assert torch.allclose(model(x, EDGES, TYPES, BATCH, G), expected, atol=1e-5)


def test_a_bag_of_nodes_sees_no_edges() -> None:
    model, x = BagOfNodes(C), torch.randn(N, C)
    rows = [model.gate(x[v]).sigmoid() * model.map(x[v]).tanh() for v in range(N)]
    expected = torch.stack([sum(rows[:4], torch.zeros(C)), sum(rows[4:], torch.zeros(C))])
    assert torch.allclose(model(x, EDGES, TYPES, BATCH, G), expected, atol=1e-6)


def test_mean_over_the_nodes() -> None:
    model, x = MPNN(C, 1, "gcn").eval(), torch.randn(N, C)
    h = model.norms[0](model.convs[0](x, TwoWayEdges.of(EDGES, TYPES, N)))
    expected = torch.stack([h[:4].mean(0), h[4:].mean(0)])
    assert torch.allclose(model(x, EDGES, TYPES, BATCH, G), expected, atol=1e-6)


def test_virtual_node_joins_what_no_edge_does() -> None:
    x = torch.randn(N, C)

    def reach(model: MPNN) -> Tensor:
        """Whether the other nodes of its graph see node 3, which has no edge."""
        moved = x.clone().requires_grad_()
        hidden: list[Tensor] = []
        model.norms[-1].register_forward_hook(lambda *call: hidden.append(call[2]))
        model.eval()(moved, EDGES, TYPES, BATCH, G)
        (grad,) = torch.autograd.grad(hidden[0][[0, 1, 2]].sum(), moved)
        return grad[3].abs().sum()

    assert float(reach(MPNN(C, 3, "gcn"))) == 0.0
    assert float(reach(MPNN(C, 3, "gcn", virtual_node=True))) > 0.0


def ogb_layer(layer: nn.Module, h: Tensor, ends: Tensor, bits: Tensor) -> Tensor:
    """GCN and GIN as the Open Graph Benchmark has them, edge by edge."""
    source, target = ends
    if isinstance(layer, GCNLayer):
        h = layer.lin(h)
        size = degree(source, len(h), dtype=h.dtype) + 1
        weight = (size[source] * size[target]) ** -0.5
        message = weight.unsqueeze(1) * (h[source] + layer.messages.lin(bits)).relu()
        own = (h + layer.root.weight).relu() / size.unsqueeze(1)
        return own + scatter(message, target, dim=0, dim_size=len(h))
    assert isinstance(layer, GINLayer)
    message = (h[source] + layer.messages.lin(bits)).relu()
    out: Tensor = layer.mlp((1 + layer.eps) * h + scatter(message, target, 0, len(h)))
    return out


@pytest.mark.parametrize("conv", ["gcn", "gin"])
def test_virtual_node_is_that_of_the_open_graph_benchmark(conv: str) -> None:
    """In training: of a virtual node that all graphs share, the first normalization leaves nothing,
    so that it takes a third layer to see what becomes of it."""
    edge_index, edge_type, batch, num_graphs = random_batch()
    model = MPNN(C, 4, conv, virtual_node=True).double()
    with torch.no_grad():  # what is zero or one at first could hide a difference
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    x = torch.randn(len(batch), C, dtype=torch.double, requires_grad=True)

    ends = torch.cat([edge_index, edge_index.flip(0)], 1)
    along = torch.stack([edge_type, torch.zeros_like(edge_type)], 1)
    bits = torch.cat([along, along + torch.tensor([0, 1])]).double()
    assert model.virtual is not None
    virtual, h = model.virtual.repeat(num_graphs, 1), x
    for i in range(4):
        inputs = h + virtual[batch]
        h = model.norms[i](ogb_layer(model.convs[i], inputs, ends, bits))
        if i < 3:
            h = h.relu()
            virtual = model.virtual_mlps[i](global_add_pool(inputs, batch) + virtual)
    found = model(x, edge_index, edge_type, batch, num_graphs)
    assert_like(found, global_mean_pool(h, batch), x, model, model)


@pytest.mark.parametrize("seed", [0, 3])
def test_virtual_nodes_of_small_graphs_beside_a_large_one_in_half_precision(seed: int) -> None:
    """With the virtual node itself in bfloat16, gradients were off by 40 and 50 %."""
    torch.manual_seed(seed)
    sizes = torch.tensor([3, 4, 5, 6] * 10 + [1000])
    batch = torch.arange(len(sizes)).repeat_interleave(sizes)
    first = (batch[:-1] == batch[1:]).nonzero().squeeze(1)
    paths, types = torch.stack([first, first + 1]), torch.zeros_like(first)
    model, x = MPNN(32, 3, virtual_node=True), torch.randn(len(batch), 32)
    weight = torch.randn(len(sizes), 32)

    def gradient(model: MPNN, x: Tensor, half: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = model(x, paths, types, batch, len(sizes))
        (out.double() * weight).sum().backward()
        return torch.cat(
            [p.grad.double().flatten() for p in model.parameters() if p.grad is not None]
        )

    exact = gradient(copy.deepcopy(model).double(), x.double(), half=False)
    assert (gradient(model, x, half=True) - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize("kind", ["gin", "gat", "vn", "ggnn"])
def test_models_of_half_precision(kind: str) -> None:
    conv = "gin" if kind == "vn" else kind
    model = GGNN(8, 2) if kind == "ggnn" else MPNN(8, 2, conv, virtual_node=kind == "vn")
    x = torch.randn(N, 8)
    exact = model.eval()(x, EDGES, TYPES, BATCH, G)
    found = model.bfloat16()(x.bfloat16(), EDGES, TYPES, BATCH, G)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), exact, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("pool", ["sag", "asap"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_pooling_drops_a_fifth_of_the_nodes(pool: str) -> None:
    model = PoolingMPNN(C, 5, pool)
    sizes: list[int] = []
    for conv in model.convs:
        conv.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    out = model(torch.randn(N, C), EDGES, TYPES, BATCH, G)
    assert out.shape == (G, C)
    # ceil(0.8 * 4) + ceil(0.8 * 3) = 7: nothing goes from graphs as small as these
    assert sizes == [7, 7, 7, 7, 7]
    long = torch.stack([torch.arange(19), torch.arange(1, 20)])
    sizes.clear()
    model(torch.randn(20, C), long, torch.zeros(19, dtype=torch.long), torch.zeros(20).long(), 1)
    assert sizes == [20, 20, 16, 16, 13]


class PooledLayers(nn.Module):
    """PyG's layers under the names of ours, put together as in its benchmarks: five convolutions,
    of which the second and the fourth are followed by a pooling."""

    def __init__(self, pool: type[SAGPooling] | type[ASAPooling]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GraphConv(C, C, aggr="mean") for _ in range(5))
        self.pools = nn.ModuleList(pool(C, ratio=0.8) for _ in range(2))
        self.lin = nn.Linear(5 * C, C)

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        first = self.convs[0](x, edges).relu()
        second = self.convs[1](first, edges).relu()
        means = [global_mean_pool(h, batch) for h in (first, second)]
        h, edges, weight, batch = self.pools[0](second, edges, None, batch)[:4]
        third = self.convs[2](h, edges, weight).relu()
        fourth = self.convs[3](third, edges, weight).relu()
        means += [global_mean_pool(h, batch) for h in (third, fourth)]
        h, edges, weight, batch = self.pools[1](fourth, edges, weight, batch)[:4]
        means.append(global_mean_pool(self.convs[4](h, edges, weight).relu(), batch))
        out: Tensor = self.lin(torch.cat(means, 1)).relu()
        return out


@pytest.mark.parametrize(("pool", "kind"), [("sag", SAGPooling), ("asap", ASAPooling)])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_pooling_is_that_of_pygs_layers(
    pool: str, kind: type[SAGPooling] | type[ASAPooling]
) -> None:
    edge_index, edge_type, batch, num_graphs = random_batch()
    model, layers = PoolingMPNN(C, 5, pool).eval(), PooledLayers(kind).eval()
    layers.load_state_dict(model.state_dict())
    x = torch.randn(len(batch), C, requires_grad=True)
    found = model(x, edge_index, edge_type, batch, num_graphs)
    assert_like(found, layers(x, to_undirected(edge_index), batch), x, model, layers)


def test_names_of_weights_in_checkpoints() -> None:
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    linear = ["weight", "bias"]

    def names(prefix: str, *modules: list[str]) -> set[str]:
        """Of a sequence with a ReLU between the normalization and what follows."""
        places = (0, 1, 3, 4)
        return {f"{prefix}.{i}.{n}" for i, own in zip(places, modules, strict=False) for n in own}

    expected = {"virtual", "convs.0.eps", "convs.1.eps"}
    expected |= names("virtual_mlps.0", linear, norm, linear, norm) | names("norms", norm, norm)
    for conv in ("convs.0", "convs.1"):
        expected |= names(f"{conv}.mlp", linear, norm, linear)
        expected |= {f"{conv}.messages.lin.{name}" for name in linear}
    assert set(MPNN(C, 2, "gin", virtual_node=True).state_dict()) == expected
    conv = {f"convs.0.conv.{name}" for name in GATConv(C, 2, heads=4, edge_dim=2).state_dict()}
    assert set(MPNN(C, 1, "gat").state_dict()) == conv | names("norms", norm)


def test_bad_names() -> None:
    with pytest.raises(ValueError, match="gcn, gin, gat"):
        make_conv("cnn", C)
    with pytest.raises(ValueError, match="'sag' or 'asap'"):
        PoolingMPNN(C, 3, "max")
    with pytest.raises(ValueError, match="divisible by 4"):
        GATLayer(7)
