"""What models ask of a batch, by kernels of our own against PyTorch's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders import dense
from dagnn.autoencoders.dag_decoder import DagDecoder
from dagnn.autoencoders.models import MODELS, make_autoencoder
from dagnn.datasets.small_dags import INPUT, OUTPUT, SmallDags
from tests.autoencoders.graphs import random_dags
from tests.autoencoders.poison import Poisoned
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

DEVICE = "cpu" if INTERPRETED else "cuda"
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((model, task, {}) for model in MODELS for task in ("na", "bn")),
    ("dagnn", "na", {"num_layers": 3}),
    ("dagnn", "na", {"aggregator": "gated_sum"}),
    ("dagnn", "bn", {"aggregator": "gated_sum", "pool": "all"}),
    ("dagnn", "na", {"cell": "linear"}),
    ("d-vae", "bn", {"bidirectional": True}),
]
SIZES = pytest.mark.parametrize(("size", "n"), [(1, 3), (3, 6), (33, 8), (2, 17)])


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_has_kernels", lambda _, dtype: dtype == torch.float32)


def slope_of(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """A function's value, and the gradient of a weighted sum of it."""
    x = x.detach().requires_grad_()
    out = function(x)
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.double).view(out.shape).to(out)
    return out.detach(), torch.autograd.grad((out * weights).sum(), x)[0]


def assert_near(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-5, atol=1e-5)


@kernels
@pytest.mark.cuda
@pytest.mark.usefixtures("with_kernels")
@SIZES
def test_rows(size: int, n: int) -> None:
    graphs = random_dags(size, max_nodes=n)
    for rows in (dense.node_rows, dense.one_hot_types):
        with Poisoned():
            found = rows(graphs.to(DEVICE), torch.float32)
        assert torch.equal(found.cpu().double(), rows(graphs, torch.double))


@kernels
@pytest.mark.cuda
@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("graph_major", [False, True])
@pytest.mark.parametrize("function", [dense.at_last_node, dense.sum_inner])
@pytest.mark.parametrize(("size", "n", "hidden"), [(1, 3, 1), (3, 6, 7), (33, 8, 20), (2, 17, 520)])
def test_sums_of_nodes(
    size: int,
    n: int,
    function: Callable[[Tensor, SmallDags], Tensor],
    graph_major: bool,
    hidden: int,
) -> None:
    graphs = random_dags(size, max_nodes=n)
    h = torch.randn(*((size, n) if graph_major else (n, size)), hidden, dtype=torch.double)

    def run(h: Tensor) -> Tensor:
        return function(h.transpose(0, 1) if graph_major else h, graphs.to(str(h.device)))

    with Poisoned():
        found = slope_of(run, h.float().to(DEVICE))
    assert_near(found, slope_of(run, h))


@kernels
@pytest.mark.cuda
@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("aggregator", ["attention", "gated_sum"])
@SIZES
def test_messages_to_pairs(size: int, n: int, aggregator: str) -> None:
    graphs = random_dags(size, max_nodes=n)
    decoder = DagDecoder(5, n, 4, aggregator=aggregator).double()
    layer = decoder._layers[0]
    h = torch.randn(n - 1, size, 4, dtype=torch.double)
    types = dense.one_hot_types(graphs, torch.double)[:-1]
    sets = graphs.adjacency[..., :-1].index_select(1, decoder.pair_v) & decoder.later

    def by_mask(h: Tensor) -> Tensor:
        return layer.gather(layer.offer(h, types), sets.to(h.dtype))

    def by_pair(h: Tensor) -> Tensor:
        offer = layer.offer(h, types.to(h))
        return layer.gather_pairs(offer, graphs.to(DEVICE), decoder.pairs)

    expected = slope_of(by_mask, h)
    decoder.float().to(DEVICE)
    with Poisoned():
        found = slope_of(by_pair, h.float().to(DEVICE))
    assert_near(found, expected)


@kernels
@pytest.mark.cuda
@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize(("name", "task", "options"), CASES)
def test_losses_and_gradients_of_models(name: str, task: str, options: dict[str, Any]) -> None:
    """All kernels together, in graphs of several sizes, each other one of a set."""
    graphs = random_dags(6, max_nodes=5)[::2]
    noise = torch.randn(3, 4, dtype=torch.double)
    torch.manual_seed(1)
    model = make_autoencoder(
        name, task, hidden_channels=7, latent_channels=4, num_types=5, max_nodes=5, **options
    ).double()

    def run(noise: Tensor) -> tuple[Tensor, ...]:
        parameters = list(model.parameters())
        loss = model.loss(graphs.to(str(noise.device)), noise)
        return (*loss, *torch.autograd.grad(loss.total, parameters))

    expected = run(noise)
    model.float().to(DEVICE)
    with Poisoned():
        found = run(noise.float().to(DEVICE))
    names = ("total", "reconstruction", "divergence", *(n for n, _ in model.named_parameters()))
    for what, ours, theirs in zip(names, found, expected, strict=True):
        if theirs.norm() < 1e-12:  # what a softmax does not feel
            assert ours.norm() < 1e-5, what
            continue
        # Those of attention nearly cancel, and are small beside the rest.
        error = (ours.cpu() - theirs).norm() / theirs.norm().clamp(min=1e-3)
        assert error < 1e-5, (what, float(error))


@kernels
@pytest.mark.cuda
@pytest.mark.usefixtures("with_kernels")
@pytest.mark.parametrize("name", ["dagnn", "d-vae"])
@pytest.mark.parametrize("nodes", [2, 4])
@torch.no_grad()
def test_one_small_graph_leaves_the_weights_alone(name: str, nodes: int) -> None:
    """Where a buffer has the size of a bias, it is a copy all the same."""
    path = torch.ones(nodes - 1).diag(-1).bool().unsqueeze(0)
    types = torch.tensor([[INPUT, *[2] * (nodes - 2), OUTPUT]])
    score = torch.zeros(1, dtype=torch.double)
    graphs = SmallDags(types, path, torch.tensor([nodes]), score, 5).check().to(DEVICE)
    model = make_autoencoder(
        name, "na", hidden_channels=7, latent_channels=4, num_types=5, max_nodes=nodes
    ).to(DEVICE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (model.loss(graphs).total for _ in range(2))
    assert torch.equal(first, second)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
