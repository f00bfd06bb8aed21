"""D-VAE's sweep by kernels of our own against the layer's own loop, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders import dag_layer
from dagnn.autoencoders.dag_layer import DagLayer
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

DEVICE = "cpu" if INTERPRETED else "cuda"
TYPES, CHANNELS = 4, 3


def swept(
    layer: DagLayer, x: Tensor, edge: Tensor, first: Tensor, slope: Tensor, reverse: bool
) -> dict[str, Tensor]:
    """States and the gradients of everything."""
    x, first = x.clone().requires_grad_(), first.clone().requires_grad_()
    for weight in layer.parameters():
        weight.grad = torch.zeros_like(weight)  # what has none, has zero
    types = x.new_zeros(*x.shape[:2], TYPES)
    h = layer.sweep(x, edge, types, first=first, reverse=reverse)
    (h * slope).sum().backward()
    of_weights = {name: weight.grad for name, weight in layer.named_parameters()}
    found = {"states": h.detach(), "x": x.grad, "first": first.grad, **of_weights}
    return {name: value.clone() for name, value in found.items() if value is not None}


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("n", "size", "hidden"),
    [(1, 3, 5), (2, 1, 1), (8, 5, 7), (17, 2, 520 if INTERPRETED else 700)]
    + ([] if INTERPRETED else [(8, 32, 501), (10, 128, 501), (30, 33, 64)]),
)
def test_fused_sweep(
    n: int, size: int, hidden: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(n * hidden + size)
    layer = DagLayer(CHANNELS, hidden, n, TYPES, aggregator="gated_sum").double()
    edge = (torch.rand(size, n, n) < 0.4).double().tril(-1)
    tensors = [torch.randn(n, size, CHANNELS), edge, torch.randn(size, hidden)]
    tensors = [tensor.double() for tensor in [*tensors, torch.randn(n, size, hidden)]]
    expected = swept(layer, *tensors, reverse)

    monkeypatch.setattr(dag_layer, "has_kernels", lambda _: True)
    calls = []
    fused = dag_layer.gated_gru_sweep

    def counted(*arguments: Tensor) -> Tensor:
        calls.append(arguments)
        return fused(*arguments)

    monkeypatch.setattr(dag_layer, "gated_gru_sweep", counted)
    found = swept(layer.float().to(DEVICE), *(t.float().to(DEVICE) for t in tensors), reverse)
    assert len(calls) == 1
    assert found.keys() == expected.keys()
    for name, theirs in expected.items():
        error = (found[name].cpu() - theirs).norm() / theirs.norm().clamp(min=1e-6)
        assert error < 1e-5, (name, float(error))


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
