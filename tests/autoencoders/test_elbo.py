"""The ends of the loss by kernels of our own against PyTorch's operations, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders import elbo
from tests.autoencoders.graphs import random_dags
from tests.autoencoders.poison import Poisoned
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

DEVICE = "cpu" if INTERPRETED else "cuda"


def outcome(run: Callable[..., tuple[Tensor, ...]], given: list[Tensor]) -> list[Tensor]:
    """What comes out, and the gradients of a weighted sum of it."""
    given = [tensor.detach().requires_grad_() for tensor in given]
    outputs = run(*given)
    weights = (torch.linspace(-1, 2, out.numel()).view(out.shape).to(out) for out in outputs)
    total = sum((out * weight).sum() for out, weight in zip(outputs, weights, strict=True))
    assert isinstance(total, Tensor)
    return [*(out.detach() for out in outputs), *torch.autograd.grad(total, given)]


def compare(
    run: Callable[..., tuple[Tensor, ...]], given: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outcome(run, given)
    monkeypatch.setattr(elbo, "has_kernels", lambda _: True)
    with Poisoned():
        found = outcome(run, [tensor.float().to(DEVICE) for tensor in given])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-5, atol=1e-5)


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(("size", "width"), [(1, 1), (3, 7), (33, 56)])
@pytest.mark.parametrize("summed", [False, True])
def test_latent_point(size: int, width: int, summed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The divergence has a gradient of its own for each graph, or one for all."""
    torch.manual_seed(size)
    given = [torch.randn(size, width, dtype=torch.double) for _ in range(2)]
    noise = torch.randn(size, width, dtype=torch.double)

    def run(mean: Tensor, log_variance: Tensor) -> tuple[Tensor, ...]:
        z, divergence = elbo.latent_point(mean, log_variance, noise.to(mean), 0.3)
        return z, divergence.sum() if summed else divergence

    compare(run, given, monkeypatch)


def test_divergence_is_that_of_normal_distributions() -> None:
    mean, log_variance = torch.randn(2, 5, 3, dtype=torch.double)
    noise = torch.randn(5, 3, dtype=torch.double)
    z, divergence = elbo.latent_point(mean, log_variance, noise, 0.1)
    normal = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), 1.0)
    expected = torch.distributions.kl_divergence(normal, standard).sum(-1)
    torch.testing.assert_close(divergence, expected)
    torch.testing.assert_close(z, mean + 0.1 * noise * normal.stddev)


def all_pairs(n: int) -> Tensor:
    place = torch.arange(n)
    return place[1:, None] * n + place[:-1]


def lower_pairs(n: int) -> Tensor:
    v, u = torch.tril_indices(n, n, -1)
    return (v * n + u).unsqueeze(0)


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(("size", "n", "types"), [(1, 3, 3), (3, 6, 5), (33, 8, 8), (4, 10, 10)])
@pytest.mark.parametrize("order", ["rows", "graphs", "pairs"])
def test_graph_likelihood(
    size: int, n: int, types: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of edges as decoders have them: by node, by graph, or by pair; some are large."""
    torch.manual_seed(size)
    graphs = random_dags(size, max_nodes=n, num_types=types)
    pairs = all_pairs(n) if order == "rows" else lower_pairs(n)
    shape = {
        "rows": (n - 1, size, n - 1),
        "graphs": (size, pairs.numel()),
        "pairs": (pairs.numel(), size),
    }[order]
    given = [30 * torch.randn(n - 1, size, types).double(), 30 * torch.randn(*shape).double()]

    def run(type_logits: Tensor, edge_logits: Tensor) -> tuple[Tensor, ...]:
        edges = {
            "rows": lambda: edge_logits.transpose(0, 1),
            "graphs": lambda: edge_logits.unsqueeze(1),
            "pairs": lambda: edge_logits.t().unsqueeze(1),
        }[order]()
        device = edges.device
        return (elbo.graph_likelihood(type_logits, edges, graphs.to(device), pairs.to(device)),)

    compare(run, given, monkeypatch)


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
