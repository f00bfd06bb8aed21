"""The sweep by kernels of our own against the one of PyTorch's operations, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders.attention_sweep import _FusedSweep, _Sweep
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

NAMES = ("inner", "edge", "place", "first", "weight", "bias", "key")


def arguments(n: int, size: int, hidden: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(n * hidden + size)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    edge = (torch.rand(size, n, n, generator=generator) < 0.4).double().tril(-1)
    scale = hidden**-0.5
    return [
        draw(n, size, 3 * hidden), edge, draw(n), draw(size, hidden),
        draw(3 * hidden, hidden) * scale, draw(3 * hidden), draw(hidden) * scale,
    ]  # fmt: skip


def swept(function: type, given: list[Tensor], weighting: Tensor) -> list[Tensor]:
    """States, then the gradients of all arguments but the edges."""
    given = [tensor.clone().requires_grad_(i != 1) for i, tensor in enumerate(given)]
    h = function.apply(*given)  # type: ignore[attr-defined]
    (h * weighting).sum().backward()
    return [h.detach(), *(tensor.grad for i, tensor in enumerate(given) if i != 1)]


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(
    ("n", "size", "hidden"),
    [(1, 3, 5), (2, 1, 1), (8, 5, 7), (10, 3, 33), (17, 2, 520 if INTERPRETED else 700)]
    + ([] if INTERPRETED else [(8, 32, 501), (10, 128, 501), (30, 33, 64)]),
)
def test_fused_sweep(n: int, size: int, hidden: int) -> None:
    given = arguments(n, size, hidden)
    weighting = torch.randn(n, size, hidden, dtype=torch.double)
    expected = swept(_Sweep, given, weighting)
    device = "cpu" if INTERPRETED else "cuda"
    found = swept(
        _FusedSweep, [tensor.float().to(device) for tensor in given], weighting.float().to(device)
    )
    names = ("states", *(name for name in NAMES if name != "edge"))
    for name, ours, theirs in zip(names, found, expected, strict=True):
        error = (ours.cpu() - theirs).norm() / theirs.norm().clamp(min=1e-6)
        assert error < 1e-5, (name, float(error))


@kernels
@pytest.mark.cuda
def test_a_second_backward_gives_the_same() -> None:
    device = "cpu" if INTERPRETED else "cuda"
    given = [tensor.float().to(device) for tensor in arguments(4, 3, 6)]
    given[0].requires_grad_()
    h = _FusedSweep.apply(*given)
    first, second = (torch.autograd.grad(h.sum(), given[0], retain_graph=True) for _ in range(2))
    assert torch.equal(first[0], second[0])


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
